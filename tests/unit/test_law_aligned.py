"""The token counts at which growth is measured."""

import dataclasses
from fractions import Fraction
from typing import Any

import pytest

from contracts.law._aligned import period, token_counts

from .observations import deployment


@pytest.mark.parametrize(
    ("server_args", "expected"),
    [
        ({}, 256 * 100),
        ({"swa_full_tokens_ratio": 0.5}, 256 * 2),
        ({"swa_full_tokens_ratio": 1}, 256),
        ({"swa_full_tokens_ratio": 0.15, "page_size": 512}, 512 * 20),
        ({"page_size": None}, 256 * 100),
        # Up to 0.5.20 a stated 0.8 gives 0.1: both must recur.
        ({"swa_full_tokens_ratio": 0.8}, 256 * 10),
    ],
)
def test_the_period_is_whole_pages_and_windows_of_both_kinds_of_token(
    server_args: dict[str, Any], expected: int
) -> None:
    assert period(deployment(4, **server_args)) == expected


def test_the_window_is_part_of_the_period() -> None:
    """Red when only pages are aligned: a ring has a row block a window."""
    plain = deployment(4, swa_full_tokens_ratio=1)
    wide = dataclasses.replace(plain, model=dataclasses.replace(plain.model, sliding_window=384))
    assert period(wide) == 768


@pytest.mark.parametrize("hundredths", range(1, 101))
@pytest.mark.parametrize("page", [128, 256])
def test_float_products_of_the_counts_grow_evenly(hundredths: int, page: int) -> None:
    """Red when T lies on a whole number of SWA pages, where float64 may fall a page short."""
    ratio = hundredths / 100
    asked = deployment(4, swa_full_tokens_ratio=ratio, page_size=page)
    step = period(asked)
    swa = [int(tokens * ratio) // page * page for tokens in token_counts(asked)]
    assert swa[1] - swa[0] == swa[2] - swa[1] == step * Fraction(str(ratio))


@pytest.mark.parametrize("ratio", [None, 0.01, 0.03, 0.1, 0.8, 1])
def test_the_counts_are_large_enough_for_requests_and_for_the_window(ratio: float | None) -> None:
    """Red when SGLang would refuse the SWA pool, or limit requests by tokens // 2."""
    stated: dict[str, Any] = {} if ratio is None else {"swa_full_tokens_ratio": ratio}
    asked = deployment(4, **stated)
    first, second, third = token_counts(asked)
    assert first >= 16_384
    assert first * Fraction(str(ratio or 0.1)) >= 4 * (128 + 256)
    assert second - first == third - second == period(asked)
    assert first % 256 == 0


def test_pp_size_does_not_move_the_counts() -> None:
    """Red when rank-sum would compare two deployments at different tokens."""
    split = deployment(4, 4, pp_size=2)
    assert token_counts(split) == token_counts(split.single_rank())


@pytest.mark.parametrize(
    ("config", "ratio"),
    [
        ('{"host_to_device_ratio": 3}', 3),
        ({"host_to_device_ratio": 7}, 7),
        ('{"top_k": 64}', 2),
        (None, 2),
    ],
)
def test_the_device_has_whole_pages_too(config: object, ratio: int) -> None:
    """Red when HiSparse's device pool grows unevenly between the token counts."""
    plain = deployment(4, swa_full_tokens_ratio=0.25)
    stated: dict[str, Any] = {} if config is None else {"hisparse_config": config}
    shrunk = deployment(4, swa_full_tokens_ratio=0.25, enable_hisparse=True, **stated)
    assert period(shrunk) % (256 * ratio) == 0
    assert period(plain) == 256 * 4
