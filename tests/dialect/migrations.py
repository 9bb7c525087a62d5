"""Migration environments of Alembic, as ``alembic init`` makes them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

_ENV = """
import tidegate_sqlalchemy.alembic
import sqlalchemy as sa
from alembic import context

config = context.config
settings = {"target_metadata": config.attributes["metadata"]}
if context.is_offline_mode():
    context.configure(
        url="tidegate://localhost", literal_binds=True,
        dialect_opts={"paramstyle": "named"}, **settings
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    with config.attributes["engine"].connect() as connection:
        context.configure(connection=connection, **settings)
        with context.begin_transaction():
            context.run_migrations()
"""
_MAKO = """
import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
"""


class Migrations:
    """One environment in a directory."""

    def __init__(
        self,
        folder: Path,
        engine: sa.Engine | None = None,
        metadata: sa.MetaData | None = None,
    ) -> None:
        self.folder = folder
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(_ENV, "utf-8")
        (folder / "script.py.mako").write_text(_MAKO, "utf-8")
        self.printed = io.StringIO()
        self.config = Config(stdout=self.printed, output_buffer=self.printed)
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("path_separator", "os")
        self.config.attributes |= {"engine": engine, "metadata": metadata}

    def write(self, revision: str, upgrade: str, downgrade: str, after: str | None = None) -> None:
        """Write a revision without autogeneration."""
        text = _MAKO.partition("def upgrade")[0].replace('${imports if imports else ""}', "")
        text = text.replace("${repr(up_revision)}", repr(revision))
        text = text.replace("${repr(down_revision)}", repr(after))
        text += f"def upgrade():\n    {upgrade}\n\n\ndef downgrade():\n    {downgrade}\n"
        (self.folder / "versions" / f"{revision}.py").write_text(text, "utf-8")

    def sql(self, direction: str, revisions: str) -> str:
        """Return what ``--sql`` prints, without its spacing."""
        self.printed.truncate(0)
        getattr(command, direction)(self.config, revisions, sql=True)
        return " ".join(self.printed.getvalue().split())

    def generate(self, revision: str, metadata: sa.MetaData) -> str:
        """Write a revision by autogenerate and return its text."""
        self.config.attributes["metadata"] = metadata
        script: Any = command.revision(
            self.config, message=revision, rev_id=revision, autogenerate=True
        )
        return Path(script.path).read_text("utf-8")

    def upgrade(self, revision: str = "head") -> None:
        """Run migrations."""
        command.upgrade(self.config, revision)

    def downgrade(self, revision: str) -> None:
        """Undo migrations."""
        command.downgrade(self.config, revision)
