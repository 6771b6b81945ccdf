import pytest

from rheostat.backends.template import TemplateModel
from rheostat.errors import ConfigError
from rheostat.pool.backend import Backend
from rheostat.types import Prediction


def filled(template: str, row: object) -> object:
    backend = TemplateModel(label="x", template=template).open("")
    assert isinstance(backend, Backend)
    (reply,) = backend.predict([row])
    assert isinstance(reply, Prediction)
    return reply.output


def test_fields_are_filled_in() -> None:
    row = {"text": "hello", "meta": {"channel": "web"}, "n": 3}
    assert filled("{text} from {meta.channel} {n} {absent}{n.more} {", row) == "hello from web 3  {"
    assert filled("say {text}", "hello {text}") == "say hello {text}"


@pytest.mark.parametrize("place", ["{text.__class__}", "{__class__.__mro__}", "{0}", "{text!r}", "{meta[channel]}"])
def test_no_attribute_and_no_code_is_reached(place: str) -> None:
    assert "class" not in str(filled(place, {"text": "t", "meta": {}})).replace(place, "")


def test_label_and_confidence_are_constant() -> None:
    backend = TemplateModel(label="unknown", confidence=None).open("")
    assert isinstance(backend, Backend)
    assert backend.predict(["a", {}]) == [Prediction("unknown"), Prediction("unknown")]
    assert backend.labels == ("unknown",)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (TemplateModel(label=" "), "label"),
        (TemplateModel(label="a", confidence=2.0), "confidence"),
        (TemplateModel(label="a", labels=("b",)), "none of the labels"),
    ],
)
def test_wrong_settings_are_refused(settings: TemplateModel, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        settings.open("")
