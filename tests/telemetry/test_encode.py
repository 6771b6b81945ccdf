from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.telemetry.encode import Draft, EntryEncoder
from rheostat.types import Failure, InputSummary, Outcome, RouteRecord
from tests.telemetry.strategies import clean, entries, hard


def hide(text):
    return text.replace("hunter22", "****")


def parts(encoded):
    return encoded.data, encoded.entry, encoded.changed


@settings(max_examples=25, deadline=None)
@given(st.lists(entries(clean) | entries(hard), max_size=4), st.sampled_from([None, hide]), st.sampled_from([50, 16_384]))
def test_a_batch_is_encoded_as_its_entries_are_one_by_one(batch, mask, max_text):
    encoder = EntryEncoder(mask=mask, max_text=max_text)
    together = encoder.encode_all([Draft(0, entry) for entry in batch])
    assert [parts(each) for each in together] == [parts(encoder.encode(entry)) for entry in batch]


def test_secrets_and_long_text_are_found_among_plain_neighbours(make_record):
    failed = make_record(2, outcomes=(Outcome("fast", failure=Failure("crashed", "key hunter22")),))
    long = make_record(3, input=InputSummary("text", 2_000, "h", "x" * 2_000))
    batch = [make_record(1), failed, long, make_record(4)]
    done = EntryEncoder(mask=hide, max_text=1_500).encode_all([Draft(0, entry) for entry in batch])
    assert [each.changed for each in done] == [False, False, True, False]
    assert b"hunter22" not in done[1].data
    assert b"key ****" in done[1].data
    assert done[2].entry.input.text.startswith("x" * 1_500 + "…[cut: 2000 ")


def test_one_entry_that_cannot_be_encoded_leaves_its_neighbours_alone(make_record):
    loop = []
    loop.append(loop)
    batch = [make_record(1), make_record(2, meta={"loop": loop}), RouteRecord(id="r3", wall="x", route="", status="ok")]
    done = EntryEncoder().encode_all([Draft(0, entry) for entry in batch])
    assert [each.entry.id for each in done] == ["r1", "r2", "r3"]
    assert [each.changed for each in done] == [False, True, False]


def test_an_entry_is_encoded_once_however_many_stores_there_are(make_record):
    drafts = [Draft(0, make_record(number)) for number in range(300)]
    first = EntryEncoder(mask=hide).encode_all(drafts[100:200])
    again = EntryEncoder(mask=hide).encode_all(drafts)
    assert [each.entry.id for each in again] == [f"r{number}" for number in range(300)]
    assert all(one is other for one, other in zip(first, again[100:200], strict=True))


def test_only_encoders_with_the_same_settings_may_share():
    assert EntryEncoder(mask=hide).agrees_with(EntryEncoder(mask=hide))
    assert not EntryEncoder(mask=hide).agrees_with(EntryEncoder())
    assert not EntryEncoder(max_text=10).agrees_with(EntryEncoder())
