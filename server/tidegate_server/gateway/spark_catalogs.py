"""Keeps the catalogs and connections of engines as the store has them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import cast

from tidegate_server.core.catalogs.loading import is_python_type
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import CatalogDefinition, PutCatalogs
from tidegate_server.core.model.external import SECRET_REFERENCE, ExternalObject, secret_reference
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.catalog_types import jdbc
from tidegate_server.gateway.catalog_types.base import CatalogType, SparkCatalog
from tidegate_server.gateway.catalog_types.options import TYPE, is_secret, named_options
from tidegate_server.gateway.catalog_types.registry import require_type
from tidegate_server.gateway.link.client import Engine


class SentCatalogs:
    """What each engine was told last; a new engine, or another gateway's change, is noticed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[Engine, tuple[int, tuple[ExternalObject, ...]]] = {}
        """The generation of each engine, and its catalogs."""

    def ensure(
        self,
        found: tuple[ExternalObject, ...],
        engine: Engine,
        secrets: Mapping[str, str],
    ) -> None:
        """Tell an engine its catalogs and connections unless it knows them.

        :raises ServerError: ENGINE_UNAVAILABLE.
        """
        if self._is_known(found, engine):
            return
        with self._lock:
            if self._is_known(found, engine):
                return
            generation = engine.generation
            definitions = tuple(_definition_or_problem(each, secrets) for each in found)
            engine.call(PutCatalogs(catalogs=definitions))
            self._sent[engine] = (generation, found)

    def _is_known(self, found: tuple[ExternalObject, ...], engine: Engine) -> bool:
        generation, sent = self._sent.get(engine, (None, ()))
        return found == sent and (not found or (engine.ready and generation == engine.generation))


def _definition_or_problem(
    catalog: ExternalObject, secrets: Mapping[str, str]
) -> CatalogDefinition:
    """Return a catalog for the engine; one that is invalid says why when it is used."""
    try:
        return definition_of(catalog, secrets)
    except ServerError as problem:
        return CatalogDefinition(
            kind=catalog.kind,
            name=catalog.name,
            class_name="",
            options={},
            problem=problem.message.rstrip("."),
        )


def definition_of(catalog: ExternalObject, secrets: Mapping[str, str]) -> CatalogDefinition:
    """Return a catalog or a connection as the engine uses it.

    :param secrets: those of the configuration.
    :raises ServerError: INVALID_CATALOG or INVALID_CONNECTION if a secret is missing or the options
        are invalid; CATALOG_TYPE.
    """
    python_type = ""
    if catalog.kind is SecuredKind.CONNECTION:
        class_name, install = jdbc.CLASS, jdbc.INSTALL
        references = {key: secret_reference(name) for key, name in catalog.secrets.items()}
        options: Mapping[str, str] = {**catalog.options, **references}
        hidden = set(references)
    else:
        kind = require_type(catalog.type)
        given = {key: value for key, value in catalog.options.items() if key.lower() != TYPE}
        if is_python_type(kind):
            class_name, python_type, install = "", catalog.type.lower(), ""
            options = named_options(given, kind.options)
        else:
            spark_type = cast("CatalogType", kind)
            spark = _spark_catalog(spark_type, given, catalog)
            class_name, python_type, options = spark.class_name, spark.python_type, spark.options
            install = spark_type.install
        literal = {value for key, value in given.items() if is_secret(key, kind.options)}
        hidden = {key for key, value in options.items() if value in literal}
    if class_name == jdbc.CLASS:
        options = jdbc.for_spark(options)
    resolved = {key: _resolve(value, catalog, secrets) for key, value in options.items()}
    hidden |= {key for key, value in options.items() if resolved[key] != value}
    return CatalogDefinition(
        kind=catalog.kind,
        name=catalog.name,
        class_name=class_name,
        options=resolved,
        python_type=python_type,
        secret=tuple(key for key in resolved if key in hidden),
        install=install,
    )


def _spark_catalog(
    kind: CatalogType, given: Mapping[str, str], catalog: ExternalObject
) -> SparkCatalog:
    try:
        return kind.spark_catalog(given)
    except (ValueError, KeyError) as problem:
        raise invalid_catalog(catalog, str(problem)) from problem


def invalid_catalog(
    catalog: ExternalObject, reason: str, hint: str = "", place: tuple[int, int] | None = None
) -> ServerError:
    """Return the error for the options of a catalog or connection.

    :param place: the line and column that it is about.
    """
    code = Code.INVALID_CATALOG
    if catalog.kind is SecuredKind.CONNECTION:
        code = Code.INVALID_CONNECTION
    line, column = place or (None, None)
    return error(code, name=catalog.name, reason=reason, hint=hint, line=line, column=column)


def _resolve(value: str, catalog: ExternalObject, secrets: Mapping[str, str]) -> str:
    for name in SECRET_REFERENCE.findall(value):
        if name not in secrets:
            hint = f"Write {name} = {{ file = '...' }} into [secrets] of the configuration."
            raise invalid_catalog(catalog, f"there is no secret {name}", hint)
    return SECRET_REFERENCE.sub(lambda found: secrets[found[1]], value)
