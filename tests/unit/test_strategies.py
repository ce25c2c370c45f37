"""What the strategies generate, which corners they reach and how they shrink."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from contracts.deployment import Deployment, Model, Speculation
from contracts.observation import Capabilities
from contracts.units import GiB, MiB, TiB
from strategies.deployment import deployments
from strategies.layers import LayerRatios, compress_ratios, models
from strategies.memory import Load, Memory, least_budget, least_tokens, memories
from strategies.parallel import Pipeline, pipelines
from strategies.shared import shared_layers
from strategies.speculative import draftings

Corner = Callable[[Deployment], bool]

BOTH = ("EAGLE", "DSPARK")
GENERATING = settings(derandomize=True, database=None, deadline=None, max_examples=150)

MEMORY_ARGUMENTS = {"swa_full_tokens_ratio", "max_running_requests", "max_total_tokens"}


def _is_shared(deployment: Deployment) -> bool:
    return deployment.model.model_type == "deepseek_v41"


FINDING = settings(derandomize=True, database=None, deadline=None, max_examples=2000)


# -- well-formed -----------------------------------------------------------------------------------


@GENERATING
@given(deployments())
def test_a_deployment_stays_within_its_domain(deployment: Deployment) -> None:
    model = deployment.model
    assert 1 <= model.num_hidden_layers <= 96
    assert set(model.compress_ratios) <= ({0, 1, 2} if _is_shared(deployment) else {0, 4, 128})
    assert len(model.compress_ratios) - model.num_hidden_layers in (0, 1, 3)
    assert model.sliding_window == 128
    assert 1 <= deployment.pp_size <= min(32, model.num_hidden_layers)
    assert deployment.partition is None or min(deployment.partition) >= 1
    assert 256 * MiB <= deployment.budget <= TiB


@GENERATING
@given(deployments())
def test_the_memory_arguments_admit_a_request(deployment: Deployment) -> None:
    arguments = deployment.server_args
    ratio = deployment.swa_ratio()
    tokens = arguments.get("max_total_tokens", 3_000_000)
    assert arguments.get("dp_size", 1) <= arguments.get("max_running_requests", 256) <= 256
    assert ratio is None or (0 < ratio <= 1 and (1000 * ratio).denominator == 1)
    assert tokens >= 4096
    assert tokens * (Fraction(1, 10) if ratio is None else ratio) >= 128 + 2 * 256


@GENERATING
@given(deployments())
def test_speculation_is_what_sglang_allows(deployment: Deployment) -> None:
    speculation, model = deployment.speculation, deployment.model
    fields = model.extra.get("text_config", model.extra)
    if speculation is None:
        assert "dspark_block_size" not in fields
        assert "SGLANG_ENABLE_PP_SPEC" not in deployment.env
        return
    if deployment.pp_size > 1:
        in_pair = deployment.server_args.get("disaggregation_mode") == "prefill"
        assert in_pair or speculation.algorithm == "EAGLE"
        assert in_pair == ("SGLANG_ENABLE_PP_SPEC" not in deployment.env)
    if speculation.algorithm == "EAGLE":
        assert model.extra == {}
        assert not _is_shared(deployment)
        assert speculation.eagle_topk == 1
        assert speculation.num_steps is not None
        assert speculation.num_draft_tokens == speculation.num_steps + 1
        assert 2 <= speculation.num_draft_tokens <= 10
    else:
        block = fields["dspark_block_size"]
        assert model.num_hidden_layers not in (2, 3)
        assert speculation.num_draft_tokens in (None, block + 1)
        assert 2 <= block + 1 <= 10
        targets = fields["dspark_target_layer_ids"]
        assert targets == list(range(model.num_hidden_layers))[-len(targets) :]
        assert fields["dspark_markov_rank"] > 0
        assert 0 <= fields["dspark_noise_token_id"] < model.config_json()["vocab_size"]


@GENERATING
@given(deployments())
def test_json_brings_a_deployment_back(deployment: Deployment) -> None:
    assert Deployment.from_json(deployment.to_json()) == deployment
    assert Deployment.from_json(json.loads(json.dumps(deployment.to_json()))) == deployment


@GENERATING
@given(
    deployments(
        capabilities=Capabilities(), pp=False, max_layers=5, max_budget=2 * GiB, windows=(64, 256)
    )
)
def test_arguments_set_the_domain(deployment: Deployment) -> None:
    assert deployment.speculation is None
    assert deployment.pp_size == 1
    assert deployment.model.num_hidden_layers <= 5
    assert deployment.budget <= 2 * GiB
    assert deployment.model.sliding_window in (64, 256)
    assert not _is_shared(deployment)
    assert set(deployment.server_args) <= MEMORY_ARGUMENTS
    assert deployment.env == {}


# -- corners ---------------------------------------------------------------------------------------


@functools.cache
def _generated() -> tuple[Deployment, ...]:
    """A thousand deployments, the same in every run."""
    collected = []

    @settings(
        derandomize=True, database=None, deadline=None, max_examples=1000, phases=[Phase.generate]
    )
    @given(deployments())
    def collect(deployment: Deployment) -> None:
        collected.append(deployment)

    collect()
    return tuple(collected)


def _stages(deployment: Deployment) -> list[tuple[int, ...]]:
    """The ratios of each stage; without a partition the last stages have the surplus layers."""
    layers, pp_size = deployment.model.num_hidden_layers, deployment.pp_size
    share, surplus = divmod(layers, pp_size)
    sizes = deployment.partition or [share] * (pp_size - surplus) + [share + 1] * surplus
    ends = list(accumulate(sizes))
    ratios = deployment.model.decoder_ratios
    return [ratios[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _extra(deployment: Deployment) -> tuple[int, ...]:
    return deployment.model.compress_ratios[deployment.model.num_hidden_layers :]


def _algorithm(deployment: Deployment) -> str | None:
    return None if deployment.speculation is None else deployment.speculation.algorithm


def _eagle(steps: int) -> Speculation:
    return Speculation(algorithm="EAGLE", num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)


def _spread(deployment: Deployment) -> int:
    """By how much the largest stage of a stated partition exceeds the smallest."""
    partition = deployment.partition or (1,)
    return max(partition) - min(partition)


def _some_but_not_all(has: Callable[[tuple[int, ...]], bool]) -> Corner:
    """Some stages are such, and some are not."""
    return lambda d: {has(stage) for stage in _stages(d)} == {True, False}


def _irregular(deployment: Deployment) -> bool:
    ratios = deployment.model.decoder_ratios
    return sum(one != next_ for one, next_ in zip(ratios, ratios[2:], strict=False)) > 10


def _cut_or_extended(head: tuple[int, ...], body: tuple[int, ...]) -> Corner:
    whole = head + body * 48
    return lambda d: (
        len(d.model.decoder_ratios) > 4
        and (d.model.decoder_ratios == whole[: d.model.num_hidden_layers])
    )


def _only(ratio: int) -> Corner:
    return lambda d: d.model.num_hidden_layers > 1 and set(d.model.decoder_ratios) == {ratio}


def _extra_zero(entries: int) -> Corner:
    return lambda d: _extra(d) == (0,) * entries


def _extra_other(entries: int) -> Corner:
    return lambda d: len(_extra(d)) == entries and any(_extra(d))


def _has(value: object, read: Callable[[Deployment], object]) -> Corner:
    return lambda d: read(d) == value


_CORNERS: dict[str, Corner] = {
    "a stage per layer": lambda d: d.pp_size == d.model.num_hidden_layers >= 3,
    "c4 on some stages only": _some_but_not_all(lambda stage: 4 in stage),
    "c128 on some stages only": _some_but_not_all(lambda stage: 128 in stage),
    "no compressed layer on some stages": _some_but_not_all(any),
    "one kind of layer on some stages": _some_but_not_all(lambda stage: len(set(stage)) == 1),
    "one layer on some stages": _some_but_not_all(lambda stage: len(stage) == 1),
    "an uneven partition": lambda d: _spread(d) > 1,
    "an even partition in another order": lambda d: (
        _spread(d) == 1 and d.partition != tuple(sorted(d.partition or ()))
    ),
    **{f"pp_size {n}": _has(n, lambda d: d.pp_size) for n in (1, 2, 3, 4, 8, 32)},
    **{f"{n} layers": _has(n, lambda d: d.model.num_hidden_layers) for n in (1, 2, 40, 43, 61, 96)},
    **{f"{n} extra, zero": _extra_zero(n) for n in (0, 1, 3)},
    **{f"{n} extra, not zero": _extra_other(n) for n in (1, 3)},
    **{f"only {ratio}": _only(ratio) for ratio in (0, 4, 128)},
    "a long irregular list": _irregular,
    "Flash cut or extended": _cut_or_extended((0, 0), (4, 128)),
    "Pro cut or extended": _cut_or_extended((128, 128), (4, 128)),
    **{f"algorithm {name}": _has(name, _algorithm) for name in (None, *BOTH)},
    **{f"EAGLE {n} steps": _has(_eagle(n), lambda d: d.speculation) for n in (1, 3)},
    "DSPARK of a block of 5": lambda d: d.model.extra.get("dspark_block_size") == 5,
    "less than 1 GiB": lambda d: d.budget < GiB,
    "more than 512 GiB": lambda d: d.budget > 512 * GiB,
    "an odd budget": lambda d: d.budget % 2 == 1,
    "no ratio": _has(None, Deployment.swa_ratio),
    **{
        f"ratio {text}": _has(Fraction(text), Deployment.swa_ratio)
        for text in ("0.1", "0.25", "0.15", "0.03", "0.8")
    },
    "a ratio of three digits": lambda d: (100 * (d.swa_ratio() or Fraction(1))).denominator > 1,
    **{
        f"max_running_requests {n}": _has(n, lambda d: d.server_args.get("max_running_requests"))
        for n in (None, 1, 64, 256)
    },
    "a token limit": lambda d: "max_total_tokens" in d.server_args,
}


@pytest.mark.parametrize("corner", _CORNERS)
def test_a_corner_is_reached(corner: str) -> None:
    assert any(map(_CORNERS[corner], _generated()))


def test_cases_vary() -> None:
    generated = _generated()
    assert len({d.key() for d in generated}) > len(generated) // 2
    assert len({d.model.compress_ratios for d in generated}) > len(generated) // 4


# -- shrinking -------------------------------------------------------------------------------------


def _minimal(layers: tuple[int, ...], **said: object) -> Deployment:
    model = Model(num_hidden_layers=len(layers), compress_ratios=layers)
    return Deployment(model=model, **{"budget": GiB, **said})  # type: ignore[arg-type] # by the table


#: What is sought, and the smallest deployment that has it.
_MINIMA: dict[str, tuple[Corner, Deployment]] = {
    "anything": (lambda _: True, _minimal((0,))),
    "a rank's slice is not the whole list": (
        lambda d: d.pp_size >= 2 and _stages(d)[1] != d.model.compress_ratios,
        _minimal((0, 0), pp_size=2),
    ),
    "a c4 layer": (lambda d: 4 in d.model.decoder_ratios, _minimal((4,))),
    "a c128 layer": (lambda d: 128 in d.model.decoder_ratios, _minimal((128,))),
    "c4 and c128": (lambda d: {4, 128} <= set(d.model.decoder_ratios), _minimal((4, 128))),
    "many c4 layers": (
        lambda d: d.model.decoder_ratios.count(4) >= 5,
        _minimal((4, 4, 4, 4, 4)),
    ),
    "a c4 layer and a pipeline": (
        lambda d: d.pp_size >= 2 and 4 in d.model.decoder_ratios,
        _minimal((4, 4), pp_size=2),
    ),
    "a partition": (
        lambda d: d.partition is not None,
        _minimal((0, 0), pp_size=2, partition=(1, 1)),
    ),
    "an uneven partition": (
        lambda d: d.partition is not None and max(d.partition) > 1 + min(d.partition),
        _minimal((0, 0, 0, 0), pp_size=2, partition=(1, 3)),
    ),
    "a stage per layer": (
        lambda d: d.pp_size == d.model.num_hidden_layers >= 3,
        _minimal((0, 0, 0), pp_size=3),
    ),
    "EAGLE": (lambda d: _algorithm(d) == "EAGLE", _minimal((0,), speculation=_eagle(1))),
    "less than 1 GiB": (lambda d: d.budget < GiB, _minimal((0,), budget=512 * MiB)),
    "a ratio": (
        lambda d: d.swa_ratio() is not None,
        _minimal((0,), server_args={"swa_full_tokens_ratio": 0.1}),
    ),
}


@pytest.mark.parametrize("sought", _MINIMA)
def test_a_counterexample_shrinks(sought: str) -> None:
    is_it, smallest = _MINIMA[sought]
    assert find(deployments(), is_it, settings=FINDING) == smallest


def test_an_extra_entry_shrinks_to_one() -> None:
    found = find(deployments(), lambda d: any(_extra(d)), settings=FINDING)
    assert (found.model.decoder_ratios, _extra(found)) == ((0,), (4,))


def test_a_dspark_draft_shrinks_to_one_layer_and_one_token() -> None:
    found = find(deployments(), lambda d: _algorithm(d) == "DSPARK", settings=FINDING)
    assert found.speculation == Speculation(algorithm="DSPARK")
    assert found.model.decoder_ratios == (0,)
    assert found.model.extra["dspark_block_size"] == 1
    assert found.model.extra["dspark_target_layer_ids"] == [0]


# -- the parts -------------------------------------------------------------------------------------


@GENERATING
@given(compress_ratios(max_layers=7))
def test_ratio_lists_keep_to_max_layers(layers: LayerRatios) -> None:
    assert 1 <= len(layers.decoder) <= 7
    assert layers.model().compress_ratios == layers.decoder + layers.extra


@pytest.mark.parametrize("partition", [(10, 11, 11, 11), (11, 11, 11, 10)])
def test_deployed_partitions_are_reachable(partition: tuple[int, ...]) -> None:
    wanted = Pipeline(4, partition)
    small = settings(FINDING, max_examples=5000, phases=[Phase.generate])
    assert find(pipelines(layers=43), lambda p: p == wanted, settings=small) == wanted


def test_possible_stages_of_a_partition_are_its_stages() -> None:
    assert Pipeline(3, (1, 3, 2)).possible_stages(6) == (range(1), range(1, 4), range(4, 6))


def test_possible_stages_without_a_partition_are_all_even_shares() -> None:
    stages = Pipeline(2).possible_stages(3)
    assert stages == (range(1), range(1, 2), range(2, 3), range(2), range(1, 3))
    assert Pipeline().possible_stages(3) == (range(3),)


@GENERATING
@given(st.data())
def test_a_budget_is_between_its_bounds(data: st.DataObject) -> None:
    load = Load.of((4, 128) * 8, [range(8)], speculative=True)
    memory = data.draw(memories(load, max_budget=GiB))
    ratio = memory.swa_full_tokens_ratio
    share = None if ratio is None else Fraction(str(ratio))
    assert least_budget(load, share, memory.max_running_requests) <= memory.budget <= GiB


def test_the_smallest_possible_budget_leaves_one_choice() -> None:
    load = Load.of((128,) * 90, [range(90)])
    least = least_budget(load, Fraction(1), 1)
    assert least > 256 * MiB
    found = set()

    @GENERATING
    @given(memories(load, max_budget=least))
    def collect(memory: Memory) -> None:
        found.add((memory.budget, memory.swa_full_tokens_ratio, memory.max_running_requests))

    collect()
    assert found == {(least, 1.0, 1)}


def test_the_bound_grows_with_what_must_be_held() -> None:
    small = Load.of((0, 4, 128), [range(3)])
    more = [
        Load.of((0, 0, 4, 128), [range(4)]),
        Load.of((4, 4, 128), [range(3)]),
        Load.of((0, 128, 128), [range(3)]),
        Load.of((0, 4, 128), [range(3)], window=64),
        Load.of((0, 4, 128), [range(3)], speculative=True),
    ]
    bound = least_budget(small, Fraction(1, 10), 8)
    assert all(least_budget(load, Fraction(1, 10), 8) > bound for load in more)
    assert least_budget(small, Fraction(1, 20), 8) > bound
    assert least_budget(small, Fraction(1, 10), 9) > bound
    in_order = [least_budget(small, Fraction(n, 1000), 8) for n in range(1, 1001)]
    assert in_order == sorted(in_order, reverse=True)
    assert least_budget(small, None, None) == least_budget(small, Fraction(1, 10), 256)


@pytest.mark.parametrize("window", [64, 128, 256])
@pytest.mark.parametrize("thousandths", [1, 7, 100, 333, 1000])
def test_least_tokens_give_the_swa_pool_more_than_window_and_page(
    window: int, thousandths: int
) -> None:
    tokens = least_tokens(window, Fraction(thousandths, 1000))
    assert tokens % 256 == 0
    assert int(tokens * (thousandths / 1000)) // 256 * 256 > window + 256


# -- bad arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: draftings(algorithms=("MEDUSA",), layers=4), "'MEDUSA' is unknown"),
        (lambda: draftings(algorithms="EAGLE", layers=4), "a tuple"),  # type: ignore[arg-type] # meant
        (lambda: draftings(algorithms=("EAGLE", "EAGLE"), layers=4), "once"),
        (lambda: shared_layers(layers=0), "layers=0"),
        (lambda: shared_layers(layers=97), "1 to 96"),
        (lambda: deployments(max_layers=0), "max_layers=0"),
        (lambda: deployments(max_layers=97), "1 to 96"),
        (lambda: deployments(max_budget=MiB), "256 MiB|[0-9.]+ GiB to 1 TiB"),
        (lambda: deployments(max_budget=2 * TiB), "to 1 TiB"),
        (lambda: deployments(max_budget=512 * MiB), "for 96 layers, [0-9.]+ GiB to 1 TiB will do"),
        (lambda: deployments(windows=()), "windows"),
        (lambda: deployments(windows=(100,)), "windows"),
        (lambda: models(max_layers=0), "max_layers=0"),
        (lambda: compress_ratios(max_layers=100), "1 to 96"),
        (lambda: pipelines(layers=0), "layers=0"),
        (lambda: pipelines(layers=97), "layers=97"),
        (lambda: pipelines(layers=4, max_pp_size=0), "max_pp_size=0"),
        (lambda: pipelines(layers=4, max_pp_size=33), "1 to 32"),
        (lambda: draftings(algorithms=BOTH, layers=0), "layers=0"),
        (lambda: memories(Load.of((128,), [range(1)]), max_budget=MiB), "256 MiB to 1 TiB"),
    ],
)
def test_an_impossible_argument_is_an_error_at_once(make: Callable[[], object], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()
