"""``python -m contracts observe``: what one deployment is charged and what is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from contracts.commands.common import (
    CannotJudge,
    bad_input,
    client_of,
    console_for,
    device_option,
    json_option,
    sglang_option,
    write_json,
)
from contracts.contract import Request
from contracts.deployment import DeploymentError
from contracts.inputs import deployment_from_options, read_deployment
from contracts.observation import Failed, Observation, Refused, Unreadable
from contracts.report import terminal
from contracts.subject.client import Client

__all__ = ["observe"]


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog="Any other option is a server argument by its SGLang name, such as "
    "--swa-full-tokens-ratio 0.15 or --speculative-algorithm EAGLE.",
)
@sglang_option
@device_option
@json_option
@click.option("--deployment", "file", metavar="FILE", help="A deployment as JSON; - reads it.")
@click.option("--model", metavar="NAME|FILE", help="A published model, or a config.json.")
@click.option("--pp-size", type=click.IntRange(min=1), help="Pipeline ranks.")
@click.option("--partition", metavar="N,N,…", help="Layers of each stage; sets --pp-size.")
@click.option("--budget", metavar="SIZE", help="Bytes a rank may spend, such as 60GiB.")
@click.option("--env", "env", multiple=True, metavar="K=V", help="An environment variable.")
@click.pass_context
def observe(
    context: click.Context,
    /,
    subject: str,
    device: str,
    json_file: str | None,
    file: str | None,
    **options: Any,
) -> None:
    """Show what one deployment is charged and what is allocated, rank by rank.

    \b
    Examples:
      python -m contracts observe --model deepseek-v4-flash --pp-size 4 --budget 60GiB
      python -m contracts observe --deployment case.json --sglang 0.5.12 --json -

    Exit codes: 0 observed, 2 usage or bad input, or SGLang refuses the deployment, 3 the subject
    cannot be loaded or read.
    """
    try:
        if file is not None:
            _no_other_options(options, context.args)
            deployment = read_deployment(file)
        else:
            deployment = deployment_from_options(**options, arguments=context.args)
    except DeploymentError as error:
        bad_input(error)
    console = console_for(json_file)
    with client_of(subject, device) as client:
        request = Request(deployment=deployment, views=frozenset({"final", "own"}))
        observation = _observed(client, request)
    for table in terminal.observation_tables(observation):
        console.print(table)
        console.print()
    write_json(json_file, observation.to_json())


def _no_other_options(options: dict[str, Any], arguments: Sequence[str]) -> None:
    stated = [name for name, value in options.items() if value not in (None, ())]
    if stated or arguments:
        names = ", ".join([f"--{name.replace('_', '-')}" for name in stated] + list(arguments))
        raise DeploymentError(f"--deployment states everything; leave out {names}")


def _observed(client: Client, request: Request) -> Observation:
    match outcome := client.observe(request):
        case Observation():
            return outcome
        case Refused():
            raise click.UsageError(
                f"SGLang refuses this deployment ({outcome.kind}): {outcome.sentence}"
            )
        case Failed():
            raise CannotJudge(
                f"SGLang failed in {outcome.where}: {outcome.kind}: {outcome.sentence}"
            )
        case Unreadable():
            raise CannotJudge(f"the subject could not be observed: {outcome.reason}")
