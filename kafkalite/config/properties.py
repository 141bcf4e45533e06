"""Sources of settings, a Java properties file and KAFKA_* of the environment; and the generated file of all settings.

Later sources win: file, environment, command line. KAFKA_LOG_SEGMENT_BYTES is log.segment.bytes, as in Kafka's own
image: two underscores are one, three are a dash. Variables of that image that are no settings are ignored.
Source: java.util.Properties.load, kafka.docker.KafkaDockerWrapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.config.settings import INT_MAX, LONG_MAX, ConfigType, Setting

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}", re.ASCII)
_FILE_BYTES_MAX = 4 << 20

_JAAS_FILE = re.compile(r"""(?:^|\s)-Djava\.security\.auth\.login\.config=(?:"([^"]+)"|(\S+))""")
_NOT_SETTINGS = frozenset({"CLUSTER_ID", "CONFIG", "HOME", "OPTS", "VERSION"})
_NOT_SETTINGS_BEGIN = ("GC_LOG_OPTS", "HEAP_OPTS", "JMX_", "JVM_", "LOG4J_", "TOOLS_LOG4J_", "LOG_CONFIG", "LOG_OPTS")


def read_properties(path: str) -> dict[str, str]:
    """The settings in a file. Raises ConfigError naming the file when it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror or error}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"cannot read the configuration {path}: it is larger than {_FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # the encoding that Java reads
    try:
        return parse_properties(text)
    except ValueError as fault:
        raise ConfigError(f"cannot read the configuration {path}: {fault}") from None


def parse_properties(text: str) -> dict[str, str]:
    """The settings in a text of Java's format; the last value of a name counts. Raises ValueError."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = 0  # of the name: the first separator that is not escaped
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        name, rest = line[:end], line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        found[_unescape(name, number)] = _unescape(rest, number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined and comments left out, each with the number of its first line."""
    lines = enumerate(re.split(r"\r\n|\n|\r", text), start=1)
    for number, line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2 == 1:  # an odd number of backslashes: the line continues
            _, following = next(lines, (0, ""))
            whole = whole[:-1] + following.lstrip(" \t\f")
            if not following:
                break
        yield number, whole


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while (slash := text.find("\\", at)) >= 0:
        parts.append(text[at:slash])
        mark = text[slash + 1 : slash + 2]
        at = slash + 2
        if mark == "u":
            if not _HEX4.match(text, at):
                raise ValueError(f"line {line_number}: \\u needs four hexadecimal digits")
            parts.append(chr(int(text[at : at + 4], 16)))
            at += 4
        else:
            parts.append(_ESCAPES.get(mark, mark))
    parts.append(text[at:])
    # two \u escapes may be the halves of one character
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in KAFKA_* variables; of Java's options, the JAAS file."""
    found: dict[str, str] = {}
    for variable, text in environment.items():
        rest = variable.removeprefix("KAFKA_")
        if rest == variable or not rest or rest in _NOT_SETTINGS or rest.startswith(_NOT_SETTINGS_BEGIN):
            continue
        name = re.sub("_{1,3}", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], rest)
        found[name.lower()] = text
    if (file := _JAAS_FILE.search(environment.get("KAFKA_OPTS", ""))) is not None:
        found.setdefault("java.security.auth.login.config", file[1] or file[2])
    return found


def annotated(settings: tuple[Setting, ...]) -> str:
    """The text of server.properties that shows every setting with its meaning, its default and its allowed values.

    Settings with a sample are set, the others are commented out with their defaults.
    """
    lines = [
        "# Every setting that kafkalite honours, with Kafka's names. Lines that begin with '#' show the defaults.",
        "# Start with it: kafkalite serve config/server.properties",
        "# The environment (KAFKA_LOG_SEGMENT_BYTES=...) and --override log.segment.bytes=... win over this file.",
        "# This file is made by: kafkalite config > config/server.properties",
    ]
    title = ""
    for setting in settings:
        if setting.section != title:
            title = setting.section
            lines += ["", "", f"############################# {title} #############################"]
        default = setting.default_text
        about = [setting.allowed()] if setting.allowed() else []
        if setting.idle:
            about.append("nothing acts on it yet")
        about.append("not set by default" if default in (None, "") else f"default {default}{_in_words(setting)}")
        mark = "#" if setting.sample is None else ""
        shown = setting.sample if setting.sample is not None else default or ""
        lines += ["", f"# {setting.doc}", f"# ({'; '.join(about)})", f"{mark}{setting.name}={shown}"]
    return "\n".join(lines) + "\n"


_TIMES = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _in_words(setting: Setting) -> str:
    """The default in words behind its number, such as " = 7 days" for 604800000 ms."""
    value = setting.default
    if setting.type not in (ConfigType.INT, ConfigType.LONG) or not isinstance(value, int) or value <= 0:
        return ""
    if value in (INT_MAX, LONG_MAX):
        return " = no limit"
    if setting.name.endswith(".ms"):
        return next((f" = {value // n} {unit}{'s' * (value > n)}" for n, unit in _TIMES if value % n == 0), "")
    if setting.name.endswith((".bytes", ".size")):
        return next((f" = {value // n} {unit}" for n, unit in _SIZES if value % n == 0), "")
    return ""
