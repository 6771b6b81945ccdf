"""Where segments end and what they begin with; cues learned from margins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.lab.cues import CueError, Passage, choose, chooses, plot
from rheostat.segments.borders import Borders, Segment, border, is_fenced, segments
from rheostat.segments.cues import CueWatch, cue_of, load_cues, save_cues

CODE = "\n\n```py\nx = 1\n\ny = 2. z\n```"
TEXT = f"It costs 3.14 e.g. today! Dr. No left: so.\n\n1. First.\n2. Second{CODE}\nEnd. 好的。是吗？ok"
PIECES = st.lists(st.sampled_from(["a", ".", " ", "\n", "。", "```", "1", "!", "So", "-"]), max_size=30)


def test_segments_of_each_kind() -> None:
    assert segments(TEXT, "sentence") == [
        *("It costs 3.14 e.g. today!", " Dr. No left: so.", "\n\n1. First.", "\n2. Second", CODE),
        *("\nEnd.", " 好的。", "是吗？", "ok"),
    ]
    assert segments(TEXT, "line")[3:6] == ["\n\n```py", "\nx = 1", "\n\ny = 2. z"]
    assert len(segments(TEXT, "block")) == 4


@settings(max_examples=400)
@given(PIECES, st.sampled_from(["sentence", "line", "block"]))
def test_segments_are_the_text_and_a_border_found_early_is_one_of_the_whole(pieces: list[str], kind: Segment) -> None:
    text = "".join(pieces)
    parts = segments(text, kind)
    assert "".join(parts) == text
    assert all(parts)
    ends = {len("".join(parts[: place + 1])) for place in range(len(parts))}
    watch, grown = Borders(kind), ""
    for piece in pieces:
        seen = len(grown)
        grown += piece
        found = watch.look(grown)
        if found is not None and kind == "line":
            assert found in ends
            assert found >= seen


def test_a_border_is_certain_only_with_what_follows() -> None:
    assert border("It is 3.", "sentence") is None
    assert border("It is so. ", "sentence") == 9
    assert border("It is 3.14 m", "sentence") is None
    assert border("好。", "sentence") == 2
    assert border("```\na. b\n", "sentence") is None
    assert border("a. b\n```\n", "sentence", fenced=True) == 8
    assert [is_fenced(text) for text in ("```py\n", "```py\n```")] == [True, False]


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        (" However, it", ("however", 8)),
        ("\n- one", ("<item>", 2)),
        ("\n\n12. a", ("<number>", 5)),
        ("\n## A b", ("<heading>", 3)),
        ("\n```py", ("<code>", 4)),
        (' "So it', ("so", 4)),
        (" **Don't** x", ("don't", 8)),
        (" Howev", None),
        ("  ", None),
        (" 3.5 m", None),
    ],
)
def test_what_a_segment_begins_with(text: str, cue: tuple[str, int] | None) -> None:
    assert cue_of(text) == cue


@settings(max_examples=300)
@given(st.lists(st.sampled_from(["So", " so", " But", ".", " a", "\n", ","]), max_size=20), st.booleans())
def test_a_cue_is_found_behind_a_border_and_never_in_what_is_out_already(pieces: list[str], begins: bool) -> None:
    watch, grown = CueWatch({"so"}, "sentence", begins=begins), ""
    for piece in pieces:
        seen = len(grown)
        grown += piece
        found = watch.look(grown)
        if found is not None:
            assert found >= seen
            assert watch.found == "so"
            assert grown[:found].lower().endswith("so")
            before = grown[: found - 2].rstrip()
            assert (
                (begins and not before)
                or border(before + " ", "sentence", len(before)) == len(before)
                or "\n" in grown[len(before) : found]
            )
            return


def passages(sure: dict[str, tuple[float, float]], texts: int = 16) -> list[Passage]:
    return [
        Passage(text, cue, margins[not chooses(text)], 0.5, chooses(text))
        for text in range(texts) for cue, margins in sure.items()
    ]  # fmt: skip


def test_the_surest_cues_are_chosen_on_one_half_and_judged_on_the_other(tmp_path: Path) -> None:
    rows = passages({"so": (0.9, 0.8), "thus": (0.7, 0.7), "but": (0.2, 0.3), "<item>": (0.6, 0.5)})
    found = choose(rows, 0.5, "sentence", ("large", "2"), ("fast", "1"))
    assert found.cues.chosen == {"so", "thus"}
    assert (found.cues.share, found.share) == (0.5, 0.5)
    assert (found.margin, found.margin_else) == (pytest.approx(0.75), pytest.approx(0.4))
    assert next(cue for cue in found.cues.cues if cue.cue == "so").held == pytest.approx(0.8)
    assert choose(rows, 0.3, "sentence", ("large", "2"), ("fast", "1")).cues.chosen == {"so"}
    rare = [*rows, *(Passage(text, "rare", 1.0, 1.0, True) for text in [text for text in range(16) if chooses(text)][:2])]
    assert "rare" not in choose(rare, 1.0, "sentence", ("large", "2"), ("fast", "1")).cues.chosen
    save_cues(found.cues, tmp_path / "cues.json")
    assert load_cues(tmp_path / "cues.json") == found.cues
    pytest.importorskip("matplotlib")
    plot(found.cues, tmp_path / "cues.png")
    assert (tmp_path / "cues.png").read_bytes().startswith(b"\x89PNG")


def test_too_little_to_learn_from_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CueError, match="too few"):
        choose(passages({"so": (0.9, 0.8)}, 2), 0.5, "sentence", ("a", "1"), ("b", "1"))
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(ValueError, match="no cues"):
        load_cues(tmp_path / "none.json")
    with pytest.raises(ValueError, match="cannot be read"):
        load_cues(tmp_path / "absent.json")
