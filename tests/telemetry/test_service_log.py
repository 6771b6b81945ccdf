import io
import json
import logging
import os
import threading

import pytest

from rheostat.telemetry.mask import Masker
from rheostat.telemetry.service_log import EcsFormatter, LaneHandler, PlainFormatter, configure

NAME = "rheostat.test_log"


@pytest.fixture
def log():
    """Configure one logger; yields a function (form, ...) -> (logger, lines so far)."""
    undo = []

    def start(form="json", **options):
        stream = io.StringIO()
        undo.append(configure(form=form, stream=stream, loggers=[NAME], **options))

        def lines():
            logging.getLogger(NAME).handlers[0].flush()
            return stream.getvalue().split("\n")[:-1]

        return logging.getLogger(NAME), lines

    yield start
    for restore in undo:
        restore()


def test_json_lines_in_ecs_form(log):
    logger, lines = log(service="shop")
    logger.warning("model %s is slow", "fast", extra={"model": "fast", "took_s": 1.5, "odd": object()})
    (row,) = map(json.loads, lines())
    assert row["message"] == "model fast is slow"
    assert row["log"] == {"level": "warning", "logger": NAME}
    assert row["service"] == {"name": "shop"}
    assert row["rheostat"] == {"model": "fast", "took_s": 1.5, "odd": "<object>"}
    assert row["@timestamp"].endswith("Z")


@pytest.mark.parametrize("form", ["json", "plain"])
def test_no_secret_in_message_extra_or_traceback(log, form):
    logger, lines = log(form, masker=Masker(["very-secret-value"]))
    try:
        raise ValueError("GET http://u:very-secret-value@host?key=very%2Dsecret-value")
    except ValueError:
        logger.exception("failed with %s", "very-secret-value", extra={"nested": {"list": ["very-secret-value"]}})
    logger.error('password="ab\\"cdef" done')
    text = "\n".join(lines())
    assert "very-secret-value" not in text
    assert "ValueError" in text
    if form == "json":
        assert len([json.loads(line) for line in lines()]) == 2


@pytest.mark.parametrize("form", ["json", "plain"])
def test_outside_text_cannot_start_a_line_or_speak_to_the_terminal(log, form):
    logger, lines = log(form)
    logger.info("user said %s", "hi\r\n12:00:00 error   faked: line\x1b[2J\x00\ud800")
    found = lines()
    assert "\x1b" not in "".join(found)
    assert "\x00" not in "".join(found)
    assert sum(not line.startswith("  ") for line in found) == 1


def test_a_wrong_log_call_is_shown_and_raises_nothing():
    record = logging.LogRecord(NAME, logging.INFO, __file__, 1, "%d things", ("no number",), None)
    assert json.loads(EcsFormatter(Masker()).format(record))["message"] == "%d things ('no number',)"
    assert "%d things ('no number',)" in PlainFormatter(Masker()).format(record)


def test_a_secret_at_the_cut_of_a_long_text_is_not_shown_by_half():
    masker = Masker(["very-secret-value"])
    for length in (16_380, 16_384 + 4_090, 40_000):
        record = logging.LogRecord(
            NAME, logging.INFO, __file__, 1, "x" * length + "very-secret-value" + "y" * 9_000, (), None
        )
        message = json.loads(EcsFormatter(masker).format(record))["message"]
        assert "very" not in message
        assert message.endswith(f"…[cut: {length + 17 + 9_000} characters in all]")


def test_level_and_restore(log):
    logger, lines = log(level="warning")
    logger.info("quiet")
    logger.warning("loud")
    assert [json.loads(line)["message"] for line in lines()] == ["loud"]
    for wrong in ({"level": "loud"}, {"form": "xml"}):
        with pytest.raises(ValueError, match="unknown log"):
            configure(**wrong)


def test_restore_gives_the_handlers_back():
    logger = logging.getLogger(NAME)
    before = (logger.level, list(logger.handlers))
    stream = io.StringIO()
    restore = configure(stream=stream, loggers=[NAME])
    logger.info("last words")
    restore()
    assert (logger.level, logger.handlers) == before
    assert "last words" in stream.getvalue()


def test_a_log_nobody_reads_blocks_nobody():
    reader, writer = os.pipe()
    stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115
    handler = LaneHandler(stream, flush_s=0.01)
    logger = logging.Logger("alone")
    logger.addHandler(handler)
    for number in range(12_000):
        logger.info("%d %s", number, "x" * 100)
    stats = handler.stats()
    assert stats.queued <= 10_128
    assert stats.queued + stats.written + stats.dropped["queue_full"] == 12_000
    assert stats.dropped["queue_full"] > 0
    drained = threading.Thread(target=lambda: all(iter(lambda: os.read(reader, 65536), b"")))
    drained.start()
    handler.close()
    stream.close()
    drained.join(10)
    os.close(reader)
    assert handler.stats().queued == 0
    assert handler.stats().dropped["closed"] == 0
