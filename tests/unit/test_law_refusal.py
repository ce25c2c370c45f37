"""refusal: what cannot be served is refused in words, and what is served has sizes."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law.refusal import JUDGES_REFUSALS, judge, plan
from contracts.observation import Failed, Observation, Outcome, Refused, View

from .locations import observe, of_outcomes
from .observations import bend_views, deployment
from .pools import without_geometry

WORDS = "Not enough memory for the page, ratio, layers."


def refused(sentence: str = WORDS, kind: str = "ValueError") -> Refused:
    return Refused(where="sizing", kind=kind, sentence=sentence)


def failed(kind: str, sentence: str) -> Failed:
    return Failed(where="sizing", kind=kind, sentence=sentence, traceback="")


def found(asked: Deployment, **bent: Outcome | None) -> list[Violation]:
    """What is found where all is refused but the deployment, and some outcomes are bent.

    ``bent`` are outcomes by case (see ``CASES``); None serves the case as it was planned.
    """
    return list(judge(outcomes(asked, **bent)))


def outcomes(asked: Deployment, **bent: Outcome | None) -> Evidence:
    requests = plan(asked)
    names = ["itself", *(["stage"] if asked.pp_size > 1 else []), *CASES]
    assert len(names) == len(requests)
    answers: list[Outcome] = []
    for name, request in zip(names, requests, strict=True):
        answer = bent[name] if name in bent else refused() if name != "itself" else None
        # Our own observations know no stage without layers either.
        asked_for = requests[0] if name == "stage" else request
        answers.append(observe(asked_for) if answer is None else answer)
    return of_outcomes(*answers)


CASES = ("page", "below", "one", "little", "byte", "ratio")


def sized(request: Request, **sizes: int) -> Observation:
    """An observation of a request with other configured sizes on rank 0."""

    def change(view: View) -> View:
        changed = dataclasses.replace(view, sizes={**view.sizes, **sizes})
        return dataclasses.replace(changed, tokens=sizes.get("full", view.tokens))

    return bend_views(of_outcomes(observe(request)), 0, change).observation


def test_refusals_are_evidence() -> None:
    assert JUDGES_REFUSALS


def test_the_cases() -> None:
    itself, page, below, one, little, byte, ratio = plan(
        deployment(4, 128, beyond=(0,), max_total_tokens=4096, page_size=256)
    )
    limits = [case.deployment.server_args["max_total_tokens"] for case in (page, below, one)]
    assert limits == [256, 255, 1]
    assert {case.deployment.server_args["page_size"] for case in (itself, page, byte)} == {256}
    assert [case.deployment.budget for case in (little, byte)] == [1 << 16, 1]
    assert ratio.deployment.model.compress_ratios == (4, 3, 0)


@pytest.mark.parametrize(
    ("asked", "partition"),
    [
        (deployment(0, 4, 4, pp_size=2), (3, 0)),
        (deployment(0, 4, 4, 4, pp_size=3, partition=(2, 1, 1)), (2, 2, 0)),
        (deployment(0, 4, 4, 4, 4, pp_size=4), (1, 1, 3, 0)),
    ],
    ids=str,
)
def test_the_stage_without_layers(asked: Deployment, partition: tuple[int, ...]) -> None:
    assert plan(asked)[1].deployment.partition == partition


@pytest.mark.parametrize("asked", [deployment(0, 4, 128), deployment(4, 4, pp_size=2)], ids=str)
def test_held(asked: Deployment) -> None:
    assert not found(asked)


def test_held_where_little_is_served() -> None:
    """Red when a page of tokens, or little memory, must be refused although it suffices."""
    assert not found(deployment(0, 4), page=None, little=None)


def test_division_by_zero() -> None:
    """Red when an error of arithmetic counts as a refusal (a stage without layers, 0.5.13)."""
    error = failed("ZeroDivisionError", "float division by zero")
    (one,) = found(deployment(0, 0, pp_size=2), stage=error)
    assert (one.rank, one.factor) == (None, None)
    assert one.message == (
        "refusal: all 2 ranks: a stage without layers = ZeroDivisionError: float division by "
        "zero, expected a refusal that names the cause (sizing)"
    )


def test_the_deployment_itself_fails() -> None:
    """Red when a legal deployment may end in an unexpected error."""
    (one,) = found(deployment(0), itself=failed("IndexError", "list index out of range"))
    assert one.message == (
        "refusal: the only rank: the deployment itself = IndexError: list index out of range, "
        "expected sizes, or a refusal (sizing)"
    )


def test_the_ranks_of_a_deployment_that_fails_are_told_by_its_cases() -> None:
    (one,) = found(deployment(0, 0, pp_size=2), itself=failed("KeyError", "3"), little=None)
    assert one.message.startswith("refusal: all 2 ranks: the deployment itself = KeyError: 3")


@pytest.mark.parametrize(
    ("case", "sentence", "violations"),
    [
        ("byte", "Not enough memory. Please try to increase --mem-fraction-static.", 0),
        ("byte", "SWA pool (0 tokens) cannot hold even one request", 0),
        ("byte", "Unsupported compression ratio: 3", 1),
        ("below", "max_total_tokens is less than a page", 0),
        ("one", "AssertionError", 1),
        ("one", "", 1),
        ("ratio", "Unsupported compression ratio: 3", 0),
        ("ratio", "compress_ratios has an unknown entry", 0),
        ("ratio", "wrong configuration", 1),
        ("ratio", "Not enough memory.", 1),
        ("stage", "Pipeline stage 1 has nothing to do", 0),
        ("stage", "SGLANG_PP_LAYER_PARTITION has a zero", 0),
        ("stage", "Not enough memory.", 1),
    ],
)
def test_a_refusal_names_the_cause(case: str, sentence: str, violations: int) -> None:
    """Red when any refusal will do, or when only one wording does."""
    answer = {case: refused(sentence)}
    assert len(found(deployment(0, 4, pp_size=2), **answer)) == violations


def test_a_long_sentence_is_cut() -> None:
    (one,) = found(deployment(0), ratio=refused("x" * 200 + "\nsecond line"))
    assert one.message == (
        f"refusal: the only rank: a layer of ratio 3 = ValueError: {'x' * 160}…, "
        "expected a refusal that names the cause (sizing)"
    )


@pytest.mark.parametrize("case", ["below", "one", "byte", "ratio", "stage"])
def test_what_cannot_be_served_is_served(case: str) -> None:
    """Red when an illegal case passes because something came out of it (0.5.12)."""
    (one,) = found(deployment(0, 4, pp_size=2), **{case: None})
    assert "served with 4096 tokens, expected a refusal (" in one.message


def served(asked: Deployment, **sizes: int) -> list[Violation]:
    """What is found where a limit of one page is served with such sizes."""
    return found(asked, page=sized(plan(asked)[1], **sizes))


def test_no_swa_tokens() -> None:
    """Red when a server that can admit no request passes (until 0.5.19)."""
    (one,) = served(deployment(0, 4), swa=0, c4_state=0)
    assert (one.rank, one.observed, one.expected) == (0, 0, "1 or more")
    assert one.message == (
        "refusal: rank 0 of 1: swa size with max_total_tokens 256 = 0, "
        "expected 1 or more (or a refusal)"
    )


@pytest.mark.parametrize(("tokens", "violations"), [(255, 1), (0, 1), (-256, 1), (256, 0)])
def test_tokens_below_a_page(tokens: int, violations: int) -> None:
    found_ones = served(deployment(0, 4), full=tokens)
    assert len(found_ones) == violations
    assert all("expected 256 or more" in one.message for one in found_ones)


def test_states_of_layers_that_the_rank_has() -> None:
    """Red when a stage without c4 layers must have c4 states, or one with them need not."""
    assert served(deployment(0, 4), c4_state=0)
    assert not served(deployment(0, 128), c4_state=0)
    assert served(deployment(0, 128), c128_state=-1)


def test_no_size_is_asked_of_an_swa_pool_that_is_not_there() -> None:
    """Red when encoder replay, which keeps windows by request, counts as a pool of no tokens."""
    asked = deployment(0, 4)
    (request,) = plan(asked)[:1]

    def windows(view: View) -> View:
        components = dict(view.pool.components)
        components["window_kv"] = components.pop("swa_kv")
        return dataclasses.replace(view, pool=dataclasses.replace(view.pool, components=components))

    assert found(asked, itself=sized(request, swa=0))
    itself = bend_views(of_outcomes(sized(request, swa=0)), 0, windows).observation
    assert not found(asked, itself=itself)


def test_no_requests() -> None:
    asked = deployment(0)

    def change(view: View) -> View:
        return dataclasses.replace(view, max_running_requests=0)

    none = bend_views(of_outcomes(observe(plan(asked)[1])), 0, change).observation
    assert (
        "max_running_requests with max_total_tokens 256 = 0" in found(asked, page=none)[0].message
    )


def test_the_deployment_s_own_sizes_are_judged() -> None:
    asked = deployment(0, 4)
    (one,) = found(asked, itself=sized(plan(asked)[0], swa=0))
    assert "swa size with the deployment itself = 0" in one.message


def test_not_applicable_where_the_deployment_is_refused() -> None:
    with pytest.raises(NotApplicable, match="SGLang refuses the deployment itself"):
        found(deployment(0), itself=refused())


def test_not_judged_where_no_page_is_told() -> None:
    asked = deployment(0)
    given = of_outcomes(observe(plan(asked)[0]))
    silent = bend_views(given, 0, lambda view: without_geometry(view, "swa_kv")).observation
    with pytest.raises(NotJudged, match="does not tell the page of any buffer"):
        found(asked, itself=silent)


def test_not_judged_when_outcomes_are_missing() -> None:
    given = outcomes(deployment(0))
    with pytest.raises(NotJudged, match="7 outcomes were planned, 6 came back"):
        list(judge(dataclasses.replace(given, outcomes=given.outcomes[:-1])))
