"""The messages of Flight SQL, in the encoding of Protocol Buffers; pure.

https://arrow.apache.org/docs/format/FlightSql.html
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tidegate_server.core.errors import Code, error

PACKAGE: Final = "arrow.flight.protocol.sql"
_ANY: Final = "type.googleapis.com/"

_Field = descriptor_pb2.FieldDescriptorProto
_TEXT, _BYTES = _Field.TYPE_STRING, _Field.TYPE_BYTES
_FLAG, _COUNT, _NUMBER = _Field.TYPE_BOOL, _Field.TYPE_INT64, _Field.TYPE_UINT32
_REPEATED: Final = frozenset({("CommandGetSqlInfo", "info"), ("CommandGetTables", "table_types")})

# In the order of their numbers, from 1.
_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ActionClosePreparedStatementRequest": {"prepared_statement_handle": _BYTES},
    "ActionCreatePreparedStatementRequest": {"query": _TEXT, "transaction_id": _BYTES},
    "ActionCreatePreparedStatementResult": {
        "prepared_statement_handle": _BYTES,
        "dataset_schema": _BYTES,
        "parameter_schema": _BYTES,
    },
    "CommandGetCatalogs": {},
    "CommandGetDbSchemas": {"catalog": _TEXT, "db_schema_filter_pattern": _TEXT},
    "CommandGetSqlInfo": {"info": _NUMBER},
    "CommandGetTableTypes": {},
    "CommandGetTables": {
        "catalog": _TEXT,
        "db_schema_filter_pattern": _TEXT,
        "table_name_filter_pattern": _TEXT,
        "table_types": _TEXT,
        "include_schema": _FLAG,
    },
    "CommandPreparedStatementQuery": {"prepared_statement_handle": _BYTES},
    "CommandPreparedStatementUpdate": {"prepared_statement_handle": _BYTES},
    "CommandStatementQuery": {"query": _TEXT, "transaction_id": _BYTES},
    "CommandStatementUpdate": {"query": _TEXT, "transaction_id": _BYTES},
    "DoPutPreparedStatementResult": {"prepared_statement_handle": _BYTES},
    "DoPutUpdateResult": {"record_count": _COUNT},
    "TicketStatementQuery": {"statement_handle": _BYTES},
}


@cache
def message_class(name: str) -> Any:
    """Return the class of a message.

    :raises KeyError: if there is none of this name.
    """
    return _classes()[f"{PACKAGE}.{name}"]


@cache
def _classes() -> Mapping[str, Any]:
    # A pool of its own, since other packages may bring these messages, too.
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="FlightSql.proto", package=PACKAGE)
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            many = (name, field) in _REPEATED
            label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
            message.field.add(name=field, number=number, type=kind, label=label)
    pool.Add(file)
    found: Mapping[str, Any] = message_factory.GetMessageClassesForFiles([file.name], pool)
    return found


def decode(data: bytes) -> tuple[str, Any]:
    """Return the name of a message, and the message.

    :raises ServerError: INVALID_REQUEST if it is none; NOT_SUPPORTED for one that is not known.
    """
    try:
        wrapped = any_pb2.Any.FromString(data)
        package, _, name = wrapped.type_url.removeprefix(_ANY).rpartition(".")
        if package != PACKAGE:
            raise DecodeError(f"the type {wrapped.type_url!r}")
        if name not in _FIELDS:
            raise error(Code.NOT_SUPPORTED, what=f"{name} over Arrow Flight SQL", hint="")
        return name, message_class(name).FromString(wrapped.value)
    except DecodeError as problem:
        reason = f"it is no message of Flight SQL: {problem}"
        raise error(Code.INVALID_REQUEST, reason=reason) from problem


def encode(name: str, **fields: Any) -> bytes:
    """Return an encoded message with its name."""
    message = message_class(name)(**fields)
    wrapped = any_pb2.Any(type_url=f"{_ANY}{PACKAGE}.{name}", value=message.SerializeToString())
    return bytes(wrapped.SerializeToString())


def encode_bare(name: str, **fields: Any) -> bytes:
    """Return an encoded message without its name."""
    return bytes(message_class(name)(**fields).SerializeToString())
