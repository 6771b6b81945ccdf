"""Mixed distributions of the next token: what is certain of them, and what is drawn."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.backends.mixing import Nexts, drawn, mix, tempered
from rheostat.backends.mixture import MixtureModel
from rheostat.segments.stops import Stops


def logs(*chances: float) -> dict[int, float]:
    total = math.fsum(chances)
    return {token: math.log(chance / total) for token, chance in enumerate(chances)}


def likeliest(known: dict[int, float], count: int) -> Nexts:
    return Nexts(dict(sorted(known.items(), key=lambda item: (-item[1], item[0]))[:count]))


DISTRIBUTIONS = st.lists(st.floats(1e-4, 1.0), min_size=8, max_size=8)


@settings(max_examples=400, deadline=None)
@given(DISTRIBUTIONS, DISTRIBUTIONS, st.floats(0.0, 1.0), st.integers(1, 8), st.sampled_from(["linear", "product"]))
def test_what_is_certain_of_a_part_is_so_of_the_whole(
    one: list[float], two: list[float], w: float, count: int, form: str
) -> None:
    p, q = logs(*one), logs(*two)
    if form == "linear":
        whole = {token: (1 - w) * math.exp(p[token]) + w * math.exp(q[token]) for token in p}
    else:
        whole = {token: math.exp((1 - w) * p[token] + w * q[token]) for token in p}
    total = sum(whole.values())
    mixed = mix([Nexts(p), Nexts(q)], [1 - w, w], form)  # type: ignore[arg-type]
    assert mixed.chances == pytest.approx({token: value / total for token, value in whole.items()})
    assert mixed.certain
    part = mix([likeliest(p, count), likeliest(q, count)], [1 - w, w], form)  # type: ignore[arg-type]
    if part.certain:
        assert whole[part.best] >= max(whole.values()) * (1 - 1e-9)


def test_a_weight_of_nothing_leaves_the_other_model_alone() -> None:
    p, q = logs(5, 3, 2), logs(1, 1, 8)
    for form in ("linear", "product"):
        assert mix([Nexts(p), Nexts(q)], [1.0, 0.0], form).chances == pytest.approx({0: 0.5, 1: 0.3, 2: 0.2})  # type: ignore[arg-type]
    assert mix([Nexts(p), Nexts(q)], [0.5, 0.5], "linear").best == 2
    assert mix([Nexts(logs(5, 4, 1)), Nexts(logs(1, 4, 5))], [0.5, 0.5], "product").best == 1


def test_two_that_know_nothing_in_common_have_no_product() -> None:
    mixed = mix([Nexts({1: -0.1}), Nexts({2: -0.1})], [0.5, 0.5], "product")
    assert (mixed.chances, mixed.certain) == ({}, False)


@given(DISTRIBUTIONS, st.floats(0.0, 0.999999))
def test_a_draw_is_of_the_distribution(chances: list[float], at: float) -> None:
    known = {token: math.exp(value) for token, value in logs(*chances).items()}
    token = drawn(known, at)
    ordered = sorted(known, key=lambda each: (-known[each], each))
    before = math.fsum(known[each] for each in ordered[: ordered.index(token)])
    assert before - 1e-9 <= at <= before + known[token] + 1e-9


def test_temperature_sharpens_and_flattens() -> None:
    known = {0: 0.6, 1: 0.3, 2: 0.1}
    assert tempered(known, 1.0) == pytest.approx(known)
    assert tempered(known, 0.5)[0] > 0.6 > tempered(known, 2.0)[0]
    assert math.fsum(tempered(known, 3.0).values()) == pytest.approx(1.0)
    assert tempered({0: 0.5, 1: 0.5, 2: 0.0}, 0.01) == pytest.approx({0: 0.5, 1: 0.5})


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), max_size=8), st.lists(st.sampled_from(["ab", "bc", "aba"]), max_size=2)
)
def test_nothing_behind_the_first_stop_is_handed_out_and_nothing_is_lost(pieces: list[str], stops: list[str]) -> None:
    watch, said = Stops(stops), ""
    for piece in pieces:
        said += watch.feed(piece)
        if watch.stopped:
            break
    whole = "".join(pieces)
    ends = [at for stop in stops if (at := whole.find(stop)) >= 0]
    if watch.stopped:
        assert said == whole[: len(said)]
        assert any(whole[len(said) :].startswith(stop) for stop in stops)
        assert not any(stop in said for stop in stops)
    else:
        assert not ends
        assert said + watch.end() == whole


@pytest.mark.parametrize(
    ("more", "told"),
    [({"labels": ("a", "b")}, "blend"), ({"run": "thread"}, "remove `run`"), ({"workers": 2}, "remove `run`")],
)
def test_settings_that_do_not_go_together_are_refused(more: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MixtureModel(first="a", second="b", weight=0.5, **more)  # type: ignore[arg-type]
