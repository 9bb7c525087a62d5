"""Starts the JVM with settings that other users of the machine cannot read."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from tidegate_server.engine.storage.jvm import java_source

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
"""The variable with what Spark's launcher appends to the class path."""
_FOLDER = "launch-"
_CLASSES = "classes-"

LOG_STORE = "tidegate.LinkedLogStore"
"""The class of Delta's log stores for local files; see ``LinkedLogStore.java``."""


def start_jvm(settings: Mapping[str, str], folder: Path, jars: Sequence[str] = ()) -> None:
    """Start the JVM of this process, unless it runs already.

    The jars are the last of its class path: an archive of classes remains valid if the class path
    begins with that for which it was created.

    PySpark would pass every setting on the command line, which any user can read. They are written
    to a file of ``folder`` instead, which exists only until the JVM has read it. A file that a
    killed process left there can only be read by its owner, too.
    """
    with SparkContext._lock:
        running = SparkContext._gateway is not None
    if running:
        return
    own_log_store = LOG_STORE in settings.values()
    with tempfile.TemporaryDirectory(prefix=_CLASSES, dir=folder) as classes:
        with (
            _settings_file(settings, folder) as file,
            _submit_arguments(file),
            _appended_to_class_path([*jars, *([classes] if own_log_store else ())]),
        ):
            gateway = launch_gateway()
        _answer_promptly(gateway)
        if own_log_store:
            _load_log_store(gateway, Path(classes))
    SparkContext._ensure_initialized(gateway=gateway)


def _answer_promptly(gateway: Any) -> None:
    """Have the JVM send long answers without a delay; see ``PromptAnswers.java``."""
    compiled = _compiled(gateway, "PromptAnswers")
    listener = compiled.getClassLoader().loadClass("tidegate.PromptAnswers").newInstance()
    gateway.java_gateway_server.addListener(listener)
    gateway.close(keep_callback_server=True)  # calls open new connections


def _load_log_store(gateway: Any, classes: Path) -> None:
    """Load a class through a directory of the class path: Delta, which knows its name, finds it."""
    compiled = _compiled(gateway, "LinkedLogStore").getBytecodes()
    file = classes / f"{LOG_STORE.replace('.', '/')}.class"
    file.parent.mkdir()
    file.write_bytes(bytes(compiled[LOG_STORE]))
    gateway.jvm.java.lang.ClassLoader.getSystemClassLoader().loadClass(LOG_STORE)


def _compiled(gateway: Any, name: str) -> Any:
    """Return the compiler of the Java class ``name``, which is beside this module."""
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(java_source(__package__, name))
    return compiler


def as_properties(settings: Mapping[str, str]) -> str:
    """Return settings as the text of a Java properties file."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


@contextmanager
def _settings_file(settings: Mapping[str, str], folder: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=folder))
    file = place / "spark.properties"
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="ascii") as output:
            output.write(as_properties(settings))
        yield file
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _submit_arguments(file: Path) -> Iterator[None]:
    """Have PySpark start ``spark-submit`` with the file; arguments of the user are kept."""
    # Without the second option the file would replace spark-defaults.conf.
    own = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"
    with _variable(_ARGUMENTS, f"{own} {os.environ.get(_ARGUMENTS) or _SHELL}"):
        yield


@contextmanager
def _appended_to_class_path(places: Sequence[str]) -> Iterator[None]:
    given = os.environ.get(_CLASS_PATH, "")
    with _variable(_CLASS_PATH, ":".join(filter(None, [given, *places]))):
        yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment for a while."""
    given = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


def _escaped(text: str) -> str:
    """Return a key or a value with everything escaped that a properties file could misread."""
    return "".join(
        letter if letter.isascii() and letter.isalnum() else _escape(letter) for letter in text
    )


def _escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
