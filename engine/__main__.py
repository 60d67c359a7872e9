"""The `stoker` command. Flags are generated from settings.py; each command is one small module."""

from __future__ import annotations

import argparse
import dataclasses
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from engine.config_file import read_config
from engine.errors import SettingError, StokerError
from engine.paths import config_file
from engine.settings import ChatSettings, EngineSettings, ServerSettings, check

VERSION = "0.1.0"
NOT_YET = ("download",)  # commands of the contract that later versions bring

T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Errors meant for the user are one line on stderr."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # An answer may hold any character, a pipe may have any encoding: never die of either.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8")
    args = _parser().parse_args(argv)
    logging.basicConfig(format="stoker: %(message)s", level=logging.WARNING)
    run: Callable[[argparse.Namespace], int] = args.run
    for name in ("SIGTERM", "SIGHUP"):  # what was learned is saved on the way out
        if hasattr(signal, name) and threading.current_thread() is threading.main_thread():
            signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    try:
        return run(args)
    except StokerError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"There is not enough memory: {error}. Use a smaller --ctx or --budget.")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python must not write to it again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # what no layer expected: a full disk behind the output, say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"{error.filename or 'The output'}: {error.strerror or error}.")


def _fail(message: str) -> int:
    """One line on stderr, whatever a path or a value in it holds; the exit code."""
    print(f"stoker: {' '.join(message.split())}", file=sys.stderr)
    return 1


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"stoker: {message}. `{self.prog} --help` lists what there is.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="stoker", description="Run large Mixture-of-Experts models on an ordinary PC."
    )
    parser.add_argument("--version", action="version", version=f"stoker {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    chat = _command(commands, "chat", _chat, "talk to a model, or answer one prompt")
    chat.add_argument("prompt", nargs="?", help="answer this and exit")
    _add_flags(chat, EngineSettings, ChatSettings)
    chat.add_argument("--json", action="store_true", help="print the answer as one JSON object")

    serve = _command(commands, "serve", _serve, "serve the OpenAI dialect over HTTP")
    _add_flags(serve, EngineSettings, ServerSettings)
    serve.add_argument(
        "--parent-pipe",
        action="store_true",
        help="read the token from standard input and stop when it ends",
    )

    for name, run, help_text in (
        ("plan", _plan, "show how a memory budget divides"),
        ("bench", _bench, "measure prompt and answer speed"),
        ("logits", _logits, "write the logits of a text to a file"),
    ):
        command = _command(commands, name, run, help_text)
        command.add_argument("file", nargs="?", metavar="MODEL", help="the same as --model")
        _add_flags(command, EngineSettings)
        if name != "logits":
            command.add_argument("--json", action="store_true", help="print one JSON object")
        if name == "bench":
            for flag, default, text in (
                ("prompt-tokens", 512, "tokens of the prompt"),
                ("gen-tokens", 64, "tokens of the answer"),
                ("depth", 0, "tokens that are in the context before"),
                ("repeat", 3, "runs"),
            ):
                command.add_argument(
                    f"--{flag}",
                    type=int,
                    default=default,
                    metavar="N",
                    help=f"{text} (default {default})",
                )
            command.add_argument(
                "--timeline", default="", metavar="F.svg", help="draw what one token waits for"
            )
        if name == "logits":
            what = command.add_mutually_exclusive_group(required=True)
            what.add_argument("--tokens", metavar="1,2,3", help="token ids")
            what.add_argument("--prompt", metavar="TEXT", help="text, tokenised as it is")
            command.add_argument("--out", required=True, metavar="F.npy", help="file to write")

    simulate = _command(commands, "simulate", _simulate, "replay recorded routing by policy")
    simulate.add_argument("trace", metavar="TRACE", help="recorded routing, .npz")
    for option, preset, metavar, text in (
        ("residency", "20,40,60", "P,P", "shares of the experts that are resident, in percent"),
        ("policy", "pool,lru,belady,hot-score,spark", "NAME,NAME", "policies; also belady-forced"),
        ("spare", "", "SIZE", "bytes per token that the link has to spare for copies"),
        ("expert-bytes", "", "SIZE", "size of an expert, if the trace does not say"),
        ("model", "", "FILE", "the GGUF file that was recorded: tells sizes"),
        ("bandwidth", "", "A,B", "bytes per second of resident experts and of misses"),
        ("plot", "", "FILE.svg", "write a chart"),
    ):
        shown = f" (default {preset})" if preset else ""
        simulate.add_argument(f"--{option}", default=preset, metavar=metavar, help=text + shown)
    simulate.add_argument(
        "--streamed",
        action="store_true",
        help="a miss is read into memory anyway, as on a processor; else it is computed elsewhere",
    )
    simulate.add_argument("--json", action="store_true", help="print one JSON object")

    inspect = _command(commands, "inspect", _inspect, "list what a GGUF file holds")
    inspect.add_argument("file", metavar="FILE")
    inspect.add_argument("--json", action="store_true", help="print one JSON object")
    doctor = _command(commands, "doctor", _doctor, "show what Stoker finds on this machine")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")

    _profile_parser(commands)
    for name in NOT_YET:
        later = _command(commands, name, _not_yet, "not in this version yet")
        later.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        later.set_defaults(name=name)
    return parser


def _profile_parser(commands: Any) -> None:
    about = "what traffic has taught about a model"
    profile = commands.add_parser("profile", help=about, description=about)
    actions = profile.add_subparsers(required=True, metavar="ACTION")
    for name, help_text in (
        ("list", "every profile there is"),
        ("show", "one profile: how unequally the experts are used"),
        ("export", "write one to a .json or .csv file"),
        ("import", "take counts from a .json or .csv file, Spark's too"),
        ("reset", "forget one"),
        ("learn", "teach one from your own chats and texts"),
    ):
        action = _command(actions, name, _profile, help_text)
        action.set_defaults(action=name)
        if name == "show":
            action.add_argument("file", nargs="?", metavar="MODEL", help="the same as --model")
        elif name in ("export", "import"):
            action.add_argument("path", metavar="FILE", help="file that ends in .json or .csv")
        elif name == "reset":
            action.add_argument("--all", action="store_true", help="every one of the model")
        elif name == "learn":
            action.add_argument(
                "paths", nargs="+", metavar="FILE", help="chats (.jsonl, .json) or plain text"
            )
        only = () if name == "learn" else ("model", "profile", "profile_dir")
        _add_flags(action, EngineSettings, only=only[2:] if name == "list" else only)
        action.add_argument("--json", action="store_true", help="print one JSON object")


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], help_text: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text
    )
    command.set_defaults(run=run)
    return command


def _add_flags(
    parser: argparse.ArgumentParser, *tables: type[Any], only: Sequence[str] = ()
) -> None:
    """A flag for every knob of `tables`, or for those named by `only`, and `--config`."""
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with settings instead of the usual one"
    )
    for table in tables:
        for field in dataclasses.fields(table):
            if only and field.name not in only:
                continue
            if isinstance(field.default, bool):
                parser.add_argument(
                    "--" + field.name.replace("_", "-"),
                    action=argparse.BooleanOptionalAction,
                    help=field.metadata["help"],
                )
                continue
            default = f" (default {field.default})" if field.default not in ("", 0) else ""
            parser.add_argument(
                "--" + field.name.replace("_", "-"),
                type=type(field.default),
                choices=field.metadata["choices"] or None,
                metavar=field.metadata["metavar"] or None,
                help=field.metadata["help"] + default,
            )


def _settings(args: argparse.Namespace, table: type[T]) -> T:
    """Defaults, then the configuration file, then the flags; checked. Raises SettingError."""
    path = config_file() if args.config is None else Path(args.config)
    config = read_config(
        path, EngineSettings, ChatSettings, ServerSettings, named=args.config is not None
    )
    values = {}
    for field in dataclasses.fields(table):  # type: ignore[arg-type]
        given = getattr(args, field.name, None)
        if field.name == "model" and getattr(args, "file", None):
            if given not in (None, args.file):
                raise SettingError(f"--model is {given} and MODEL is {args.file}", "Give one")
            given = args.file
        if given is None:
            given = config.get(field.name)
        if given is not None:
            values[field.name] = given
    settings = table(**values)
    check(settings)
    return settings


# Each command is imported when it runs: `stoker inspect` should not load what `serve` needs.


def _chat(args: argparse.Namespace) -> int:
    from engine.commands.chat import chat

    return chat(
        _settings(args, EngineSettings), _settings(args, ChatSettings), args.prompt, args.json
    )


def _serve(args: argparse.Namespace) -> int:
    from engine.server.contract import LoadedModel, Progress
    from engine.server.http import serve

    def load(settings: EngineSettings, progress: Progress) -> LoadedModel:
        # Imported in the server's worker thread: the window can connect before it is done.
        from engine.open_model import open_model

        return open_model(settings, progress)

    serve(
        _settings(args, EngineSettings),
        _settings(args, ServerSettings),
        open_model=load,
        parent_pipe=args.parent_pipe,
    )
    return 0


def _plan(args: argparse.Namespace) -> int:
    from engine.commands.plan import show_plan

    return show_plan(_settings(args, EngineSettings), args.json)


def _bench(args: argparse.Namespace) -> int:
    from engine.bench.speed import Workload, bench

    work = Workload(args.prompt_tokens, args.gen_tokens, args.depth, args.repeat)
    return bench(_settings(args, EngineSettings), work, args.json, args.timeline)


def _logits(args: argparse.Namespace) -> int:
    from engine.commands.logits import write_logits

    return write_logits(_settings(args, EngineSettings), args.tokens, args.prompt, args.out)


def _simulate(args: argparse.Namespace) -> int:
    from engine.bench.simulate import Question, simulate

    question = Question(
        args.trace,
        args.residency,
        args.policy,
        args.spare,
        args.streamed,
        args.expert_bytes,
        args.model,
        args.bandwidth,
    )
    return simulate(question, args.json, args.plot)


def _inspect(args: argparse.Namespace) -> int:
    from engine.commands.inspect import inspect

    return inspect(args.file, args.json)


def _doctor(args: argparse.Namespace) -> int:
    from engine.commands.doctor import doctor

    return doctor(args.json)


def _profile(args: argparse.Namespace) -> int:
    settings = _settings(args, EngineSettings)
    if args.action == "learn":
        from engine.commands.learn import learn

        return learn(settings, args.paths, args.json)
    from engine.commands import profile

    match args.action:
        case "export":
            return profile.export_profile(settings, args.path, args.json)
        case "import":
            return profile.import_profile(settings, args.path, args.json)
        case "reset":
            return profile.reset_profile(settings, args.all, args.json)
        case "show":
            return profile.show_profile(settings, args.json)
    return profile.list_profiles(settings, args.json)


def _not_yet(args: argparse.Namespace) -> int:
    print(f"stoker: {args.name}: not yet in version {VERSION}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
