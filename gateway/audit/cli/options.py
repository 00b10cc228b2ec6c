"""The command line of `portcullis audit`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gateway.arguments import whole_number, with_example
from gateway.audit.cli.emit_rules import ACTIONS
from gateway.audit.query.load import MAX_BATCH, MAX_TEMPERATURE, MIN_TEMPERATURE
from gateway.audit.query.model import Decoding, LocalModel, ServedModel
from gateway.policy.errors import ConfigError
from gateway.policy.model import Action
from gateway.policy.urls import read_http_url
from gateway.policy.value import Scalar, ScalarKind, Value

MAX_NUMBER = 1_000_000_000
MAX_SECONDS = 30 * 24 * 3600.0
MAX_WORKERS = 1024
MASK = "mask"  # what `--verify` is, where it is no URL

_PROMPT_LIMIT = 10
_PROMPT_LEAST = 0.001


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; exits with status 2 for a wrong use. `model` is None, a LocalModel or a ServedModel."""
    parser = command_parser()
    # Files of queries may stand before and behind options.
    options = parser.parse_intermixed_args(arguments)
    if bool(options.queries) == (options.policy is not None):
        parser.error("give a query's file, or some, or --policy with --config and --prompts")
    if options.policy is not None and (options.config is None or options.prompts is None):
        parser.error("--policy needs --config and --prompts")
    for name in ("config", "prompts", "chat", *_DECODING):
        if options.queries and getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} is for prompts, with --policy; a query says it in its file")
    if options.count and not options.queries:
        parser.error("--count is for a query")
    options.model = _model(options, parser)
    if options.policy is not None:
        # A model that breaks no rule would be searched for ever.
        options.limit = options.limit or _PROMPT_LIMIT
        options.least = options.least or _PROMPT_LEAST
    if options.verify is None and options.verify_samples is not None:
        parser.error("--verify-samples is for --verify with a gateway's address")
    if options.emit_rules is None and options.verify is None and (options.rules_action or options.rules_mask):
        parser.error("--rules-action and --rules-mask are for --emit-rules and --verify")
    return options


def decoding_of(options: argparse.Namespace) -> Decoding:
    """The decoding rule for prompts."""
    given = {name: getattr(options, name) for name in _DECODING if getattr(options, name) is not None}
    return Decoding(**{"top_k": 40, "max_tokens": 32, **given})


_DECODING = ("max_tokens", "top_k", "top_p", "temperature")


def _model(options: argparse.Namespace, parser: argparse.ArgumentParser) -> LocalModel | ServedModel | None:
    if options.model is None:
        if options.tokenizer is not None:
            parser.error("--tokenizer is for --model vllm:URL")
        return None
    kind, _, place = options.model.partition(":")
    if kind == "hf" and place:
        return LocalModel(place)
    if kind != "vllm" or not re.match("https?://", place):
        parser.error("--model is hf:FOLDER or vllm:URL, as in hf:./model or vllm:http://127.0.0.1:8000/v1")
    if not options.name or options.tokenizer is None:
        parser.error("--model vllm:URL needs --name, as the model is served, and --tokenizer, the model's folder")
    try:
        url = _address(place, "a key is read from UPSTREAM_API_KEY")
    except ConfigError as error:
        parser.error(f"--model: vllm: {error.reason}")
    return ServedModel(vllm=url, name=options.name, tokenizer=str(options.tokenizer))


def _address(text: str, secrets: str) -> str:
    """A URL; one that may hold a password is refused and not shown. Raises ConfigError."""
    return read_http_url(Value("", "", Scalar(text, ScalarKind.TEXT)), "http://127.0.0.1:8000/v1", secrets)


def _decimal(accepts: Callable[[float], bool], wanted: str) -> Callable[[str], float]:
    """The `type` of an option: a decimal number that is accepted, else the error says that it is not what is wanted."""

    def convert(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,10})?", text):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 0.5")
        if not accepts(float(text)):
            raise argparse.ArgumentTypeError(f"{text!r} is {wanted}")
        return float(text)

    return convert


_up_to = partial(whole_number, "a whole number", 1)
_number = _up_to(MAX_NUMBER)
_seconds = _decimal(lambda seconds: 0 < seconds <= MAX_SECONDS, "not a number of seconds, above 0")
_share = _decimal(lambda share: 0 < share <= 1, "not a number above 0, up to 1")
_temperature = _decimal(
    lambda number: not number or MIN_TEMPERATURE <= number <= MAX_TEMPERATURE,
    f"neither 0 nor a number from {MIN_TEMPERATURE:f} to {MAX_TEMPERATURE:.0f}",
)


def command_parser() -> argparse.ArgumentParser:
    """The options of `portcullis audit`."""
    statuses = (
        "Exit status: 0 done, 1 --verify found something still, 2 wrong query or usage,\n3 --fail-on-findings and "
        "something was found, 70 internal error, 75 the model cannot\nbe asked or failed on the way, 130 stopped."
    )
    parser = argparse.ArgumentParser(
        prog="portcullis audit",
        description="Ask a model what it would say: a query's strings, or what breaks a policy; the most likely first.",
        allow_abbrev=False,
        **with_example("portcullis audit phone.yaml --model hf:./model --limit 20", statuses),
    )
    parser.add_argument("queries", nargs="*", type=Path, metavar="QUERY", help="a query's file, YAML or JSON")
    parser.add_argument("--count", action="store_true", help="only print how many strings a query has")
    parser.add_argument("--limit", type=_number, metavar="N", help="at most N strings of each query, or prompt (10)")
    parser.add_argument(
        "--least", type=_share, metavar="P", help="no strings that are less probable than P; with prompts 0.001"
    )
    parser.add_argument("--timeout", type=_seconds, metavar="S", help="search for at most S seconds")
    parser.add_argument("--batch", type=_up_to(MAX_BATCH), metavar="N", help="prefixes in one call of the model")
    parser.add_argument("--device", default="cpu", metavar="D", help="where a model of hf: runs: cpu (default), cuda")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the lines of standard output, in a file as well")
    parser.add_argument("--report", type=Path, metavar="FILE", help="a page of HTML")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="write a checkpoint here at the end")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="resume from a checkpoint")
    parser.add_argument("--fail-on-findings", action="store_true", help="exit with 3 if something was found")

    where = parser.add_argument_group("many queries, or prompts: where they are asked")
    many = "in so many processes, each with the model (1)"
    where.add_argument("--processes", type=_up_to(MAX_WORKERS), metavar="N", help=many)
    ray = "by workers of Ray, --processes of them: local, auto, ray://HOST:PORT"
    where.add_argument("--ray", type=_ray, metavar="ADDRESS", help=ray)

    model = parser.add_argument_group("the model, if it is not that of the query or of the policy's route")
    model.add_argument("--model", metavar="M", help="hf:FOLDER or vllm:URL")
    model.add_argument("--name", metavar="NAME", help="the model's name at the server, or at the gateway")
    model.add_argument("--tokenizer", type=Path, metavar="PATH", help="a folder or tokenizer.json, for vllm:")

    rules = parser.add_argument_group("from what was found to rules, and to what they change")
    rules.add_argument("--emit-rules", type=Path, metavar="FILE", help="write word rules, for a policy's `rules`")
    rules.add_argument("--rules-action", type=Action, choices=ACTIONS, help="the action of the rules (redact)")
    rules.add_argument("--rules-mask", action="store_true", help="with decode: mask")
    rules.add_argument(
        "--verify", type=_verify, metavar="mask|URL", help="repeat the audit through the masks or a gateway"
    )
    rules.add_argument("--verify-samples", type=_number, metavar="N", help="answers to draw from a gateway (20)")

    prompts = parser.add_argument_group("prompts: would a model break a policy's rules?")
    prompts.add_argument("--policy", metavar="NAME", help="the policy whose rules are audited")
    prompts.add_argument("--config", type=Path, metavar="F", help="the configuration that has the policy")
    prompts.add_argument("--prompts", type=Path, metavar="FILE", help="one a line")
    prompts.add_argument("--chat", action="store_true", help="each is a user's message, in the model's template")
    prompts.add_argument("--max-tokens", type=_number, metavar="N", help="most tokens of an answer (32)")
    prompts.add_argument("--top-k", type=_number, metavar="K", help="sample from the K most likely tokens (40)")
    prompts.add_argument("--top-p", type=_share, metavar="P", help="of them, the most likely up to P in total (1)")
    prompts.add_argument("--temperature", type=_temperature, metavar="T", help="sampling temperature (1)")
    return parser


def _ray(text: str) -> str:
    if not re.fullmatch(r"local|auto|ray://[^\s/?#@]+:[0-9]{1,5}", text):
        shown = "this" if "@" in text else repr(text)  # it may hold a password
        raise argparse.ArgumentTypeError(f"{shown} is not local, auto or an address such as ray://10.0.0.1:10001")
    return text


def _verify(text: str) -> str:
    if text == MASK:
        return text
    if not re.match("https?://", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither mask nor an address such as http://127.0.0.1:8080/v1")
    try:
        return _address(text, "a key is read from PORTCULLIS_KEY")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.reason) from None
