"""Changes by key from a real broker: the newest row of each key, exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate
from tests.support.fixtures.kafka import NULL, Broker, produce
from tests.support.fixtures.server import Server, StartServer, run_as
from tests.support.full_run import FULL
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches Kafka's broker"),
    pytest.mark.timeout(900),
]
COLUMNS = "id INT, name STRING, amount DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED"
EVENTS = 100_000


@pytest.fixture
def changing(start_server: StartServer) -> Server:
    started = start_server("--set=engine.kafka=true")
    started.wait_for_engine()
    return started


def _debezium(op: str, row: dict[str, Any]) -> str:
    place = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**place, "op": op, "ts_ms": 1, "source": {"db": "shop"}})


def _canal(op: str, row: dict[str, Any]) -> str:
    kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
    texts = {key: str(value) for key, value in row.items()}
    return json.dumps({"data": [texts], "type": kind, "database": "shop", "table": "items"})


def _maxwell(op: str, row: dict[str, Any]) -> str:
    return json.dumps({"data": row, "type": {"c": "insert", "u": "update", "d": "delete"}[op]})


def _ogg(op: str, row: dict[str, Any]) -> str:
    place = {"before": row} if op == "d" else {"after": row}
    return json.dumps({**place, "op_type": {"c": "I", "u": "U", "d": "D"}[op]})


def _events(
    seed: int, count: int, state: dict[int, tuple[str, str]], *, keys: int = 50
) -> Iterator[tuple[str, Any]]:
    """Yield changes, some of them twice, and keep the rows after them in ``state``."""
    chance = random.Random(seed)
    for number in range(count):
        key = chance.randrange(keys)
        op = "d" if key in state and chance.random() < 0.2 else "u" if key in state else "c"
        row = {"id": key, "name": f"n{seed}-{number}", "amount": number}
        if op == "d":
            state.pop(key)
        else:
            state[key] = (str(row["name"]), f"{number}.00")
        for _ in range(2 if chance.random() < 0.01 else 1):
            yield op, row


def _rows(server: Server, table: str) -> dict[int, tuple[str | None, str]]:
    found = run_as(server, "carl", f"SELECT id, name, amount FROM {table}")
    assert len({row[0] for row in found}) == len(found)
    return {row[0]: (row[1], str(row[2])) for row in found}


@pytest.mark.parametrize(
    ("format", "encode"),
    [
        ("debezium-json", _debezium),
        ("canal-json", _canal),
        ("maxwell-json", _maxwell),
        ("ogg-json", _ogg),
    ],
)
def test_the_table_has_the_last_event_of_each_key(
    changing: Server, broker: str, format: str, encode: Callable[[str, dict[str, Any]], str]
) -> None:
    state: dict[int, tuple[str, str]] = {}
    for seed in range(3):
        lines = (f"{row['id']}|{encode(op, row)}" for op, row in _events(seed, 300, state))
        produce(broker, "items", lines, keyed=True)
        if seed == 0:
            run_as(
                changing,
                "carl",
                f"CREATE TABLE items ({COLUMNS}) WITH ('connector' = 'kafka', 'topic' = 'items', "
                f"'properties.bootstrap.servers' = '{broker}', 'format' = '{format}')",
                "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM items",
                "CREATE MATERIALIZED TABLE some FRESHNESS = INTERVAL '1' DAY AS "
                "SELECT amount, upper(name) AS name, id FROM items i WHERE i.amount >= 100",
            )
        for table in ("m", "some"):
            run_as(changing, "carl", f"ALTER MATERIALIZED TABLE {table} REFRESH")
        assert _rows(changing, "m") == state
        assert _rows(changing, "items") == state
        assert _rows(changing, "some") == {
            key: (name.upper(), amount)
            for key, (name, amount) in state.items()
            if float(amount) >= 100
        }
    run_as(changing, "carl", "ALTER MATERIALIZED TABLE m REFRESH")
    [last, *_] = run_as(changing, "carl", "SHOW REFRESH HISTORY FOR m LIMIT 1")
    assert "NO_DATA" in last
    [(created,)] = run_as(changing, "carl", "SHOW CREATE MATERIALIZED TABLE m")
    assert "PRIMARY KEY (`id`)" in created


def test_a_compacted_topic_is_a_table_by_its_key(changing: Server, broker: str) -> None:
    lines = ['{"id": 1}|{"name": "a", "amount": 1}', '{"id": 2}|{"name": "b", "amount": 2}']
    produce(broker, "prices", lines, keyed=True)
    run_as(
        changing,
        "carl",
        f"CREATE TABLE prices ({COLUMNS}) WITH ('connector' = 'upsert-kafka', 'topic' = 'prices', "
        f"'properties.bootstrap.servers' = '{broker}', 'key.format' = 'json', "
        "'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY')",
        "CREATE MATERIALIZED TABLE p (PRIMARY KEY (id) NOT ENFORCED) FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT * FROM prices",
    )
    produce(
        broker,
        "prices",
        [f'{{"id": 1}}|{NULL}', '{"id": 2}|{"name": "c", "amount": 3}'],
        keyed=True,
    )
    run_as(
        changing,
        "carl",
        "INSERT INTO prices VALUES (3, 'd', 4), (4, 'e', 5)",
        "INSERT INTO prices (amount, id) VALUES (6, 4)",
        "ALTER MATERIALIZED TABLE p REFRESH",
    )
    assert (
        _rows(changing, "p")
        == _rows(changing, "prices")
        == {
            2: ("c", "3.00"),
            3: ("d", "4.00"),
            4: (None, "6.00"),
        }
    )
    for query, words in (
        ("SELECT name FROM prices", "select id, too"),
        ("SELECT id, explode(array(1, 2)) AS e FROM prices", "over changes a query is"),
    ):
        with pytest.raises(tidegate.Error, match=words):
            run_as(changing, "carl", f"CREATE MATERIALIZED TABLE q AS {query}")
    with pytest.raises(tidegate.Error, match="An INSERT of changes"):
        run_as(
            changing,
            "carl",
            "CREATE TABLE target (id INT) USING delta",
            "INSERT INTO target SELECT id FROM prices",
        )
    with pytest.raises(tidegate.Error, match="A primary key other than"):
        run_as(
            changing,
            "carl",
            "CREATE MATERIALIZED TABLE q (PRIMARY KEY (name) NOT ENFORCED) AS SELECT * FROM prices",
        )


def test_deaths_of_broker_engine_and_gateway_lose_and_double_nothing(
    start_server: StartServer, kafka_broker: Broker
) -> None:
    server = start_server("--set=engine.kafka=true")
    server.wait_for_engine()
    state: dict[int, tuple[str, str]] = {}

    def arrive(seed: int) -> None:
        before = dict(state)
        events = list(_events(seed, EVENTS // 5, state, keys=5000))
        chance = random.Random(seed)
        # Every twentieth comes up to a hundred events late, also after newer ones of its key: the
        # last one in the topic counts.
        for at in chance.sample(range(len(events) - 100), len(events) // 20):
            events.insert(at + chance.randrange(1, 100), events.pop(at))
        state.clear()
        state.update(before)
        for op, row in events:
            if op == "d":
                state.pop(row["id"], None)
            else:
                state[row["id"]] = (row["name"], f"{row['amount']}.00")
        lines = (f"{row['id']}|{_debezium(op, row)}" for op, row in events)
        produce(kafka_broker.address, "items", lines, keyed=True)

    arrive(0)
    run_as(
        server,
        "carl",
        f"CREATE TABLE items ({COLUMNS}) WITH ('connector' = 'kafka', 'topic' = 'items', "
        f"'properties.bootstrap.servers' = '{kafka_broker.address}', 'format' = 'debezium-json')",
        "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '2' SECOND AS SELECT * FROM items",
    )
    wait_until(lambda: _settled(server) == state, "the first events", 120)
    arrive(1)
    engine = server.wait_for_engine()
    os.kill(engine["jvm_pid"], signal.SIGKILL)
    arrive(2)
    wait_until(lambda: _settled(server) == state, "the events after the engine's death", 180)
    kafka_broker.kill()
    time.sleep(5)  # refreshes fail meanwhile
    kafka_broker.start()
    arrive(3)
    wait_until(lambda: _settled(server) == state, "the events after the broker's death", 180)
    server.kill()
    arrive(4)
    server = start_server("--set=engine.kafka=true")
    server.wait_for_engine()
    wait_until(lambda: _settled(server) == state, "the events after the gateway's death", 180)


def _settled(server: Server) -> dict[int, tuple[str | None, str]] | None:
    """Return the rows; None while there is no engine."""
    try:
        return _rows(server, "m")
    except tidegate.Error as problem:
        if problem.code in ("ENGINE_LOST", "ENGINE_UNAVAILABLE"):
            return None
        raise
