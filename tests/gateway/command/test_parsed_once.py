"""A statement is tokenized once, and the engine analyzes it at most once."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.command.fakes import World
from tests.gateway.command.guarded import READS_M, Guarded, SurveyingEngine
from tests.gateway.protocol.gateway import eventually
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.privileges import Privilege
from tidegate_server.core.model.states import OperationState
from tidegate_server.core.sql.dialect import Tidegate
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.options import MAX_STALENESS_KEY, READ_CONSISTENCY_KEY
from tidegate_server.gateway.session.manager import SessionManager


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM t", "INSERT INTO t SELECT 1", "SHOW TABLES", "CREATE TEMP VIEW v AS SELECT 1"],
)
def test_a_statement_for_spark_is_tokenized_once(
    world: World, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    world.engine = SurveyingEngine()
    services = replace(world._services(), new_id=lambda: str(uuid.uuid4()))
    manager = SessionManager(services, prepare)
    session = manager.open("ann", {}, manager.connect())
    session.state.settings.update({MAX_STALENESS_KEY: "1 d", READ_CONSISTENCY_KEY: "SNAPSHOT"})
    tokenized: list[str] = []
    tokenize = Tidegate.Tokenizer.tokenize

    def counting(self: Any, sql: str) -> Any:
        tokenized.append(sql)
        return tokenize(self, sql)

    monkeypatch.setattr(Tidegate.Tokenizer, "tokenize", counting)
    operation = session.submit(text)
    assert eventually(lambda: operation.state.terminal)
    assert operation.state is OperationState.FINISHED
    assert tokenized == [text]


def test_privileges_and_both_options_share_one_analysis(guarded_world: Guarded) -> None:
    world, query = guarded_world, "SELECT * FROM m"
    world.engine.surveys[query] = READS_M
    world.may(Privilege.SELECT)
    world.be("bob")
    world.execute(f"SET '{MAX_STALENESS_KEY}' = '1 d SERVE'")
    world.execute(f"SET '{READ_CONSISTENCY_KEY}' = 'SNAPSHOT'")
    world.engine.requests.clear()
    world.execute(query)
    assert [each.sql for each in world.engine.requests_of(Survey)] == [query]
