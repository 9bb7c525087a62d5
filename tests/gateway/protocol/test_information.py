from __future__ import annotations

import pytest

from tidegate.wire.service import ttypes
from tidegate_server.gateway.protocol.information import information

KINDS = ttypes.TGetInfoType


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        (KINDS.CLI_MAX_DRIVER_CONNECTIONS, "smallIntValue", 0),
        (KINDS.CLI_FETCH_DIRECTION, "integerBitmask", 0x3),
        (KINDS.CLI_ACCESSIBLE_TABLES, "stringValue", "N"),
        (KINDS.CLI_CURSOR_COMMIT_BEHAVIOR, "smallIntValue", 2),
        (KINDS.CLI_DEFAULT_TXN_ISOLATION, "integerBitmask", 0),
        (KINDS.CLI_IDENTIFIER_CASE, "smallIntValue", 2),
        (KINDS.CLI_IDENTIFIER_QUOTE_CHAR, "stringValue", "`"),
        (KINDS.CLI_SCROLL_CONCURRENCY, "integerBitmask", 1),
        (KINDS.CLI_TXN_CAPABLE, "smallIntValue", 0),
        (KINDS.CLI_USER_NAME, "stringValue", "eva"),
        (KINDS.CLI_NULL_COLLATION, "smallIntValue", 1),
        (KINDS.CLI_ALTER_TABLE, "integerBitmask", 0x21),
        (KINDS.CLI_MAX_COLUMNS_IN_TABLE, "smallIntValue", 0),
        (KINDS.CLI_MAX_COLUMN_NAME_LEN, "lenValue", 128),
        (KINDS.CLI_MAX_STATEMENT_LEN, "lenValue", 1000),
        (KINDS.CLI_MAX_ROW_SIZE, "lenValue", 0),
        (KINDS.CLI_OJ_CAPABILITIES, "integerBitmask", 0x7F),
        (KINDS.CLI_XOPEN_CLI_YEAR, "stringValue", "1995"),
        (KINDS.CLI_CURSOR_SENSITIVITY, "integerFlag", 1),
        (KINDS.CLI_CATALOG_NAME, "stringValue", "Y"),
        (KINDS.CLI_COLLATION_SEQ, "stringValue", "UTF8_BINARY"),
    ],
)
def test_an_answer_stands_in_the_member_of_its_type(
    kind: int, member: str, value: int | str
) -> None:
    told = vars(information(kind, "eva", max_statement_bytes=1000))
    assert {name: each for name, each in told.items() if each is not None} == {member: value}


@pytest.mark.parametrize("name", sorted(KINDS._NAMES_TO_VALUES))
def test_nothing_that_clients_may_ask_is_left_empty(name: str) -> None:
    told = vars(information(KINDS._NAMES_TO_VALUES[name], "eva", max_statement_bytes=1000))
    # Names have no more special characters than SQL gives them.
    assert name == "CLI_SPECIAL_CHARACTERS" or told["stringValue"] != ""


def test_what_nobody_knows_is_answered_by_an_empty_text() -> None:
    assert information(4711, "eva", max_statement_bytes=1000).stringValue == ""
