"""Requires that a user may do something, or raises ACCESS_DENIED."""

from __future__ import annotations

from typing import get_args

from tidegate_server.core.config_sections import Hazard
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    SecuredObject,
    secured_table,
)
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.context import Context, Services

ALLOWED_BY = 'An administrator can allow it with authorization.allow = ["{feature}"].'


_ASK = "Its owner or an administrator can GRANT it."


def require(action: Action, table: MaterializedTable, user: str, services: Services) -> None:
    """Require that a user may perform an action on a table.

    :raises ServerError: ACCESS_DENIED.
    """
    require_on(action, secured_table(table), user, rights_of(user, services))


def require_for(action: Action, table: MaterializedTable, context: Context) -> None:
    """Require that a statement's user may perform an action on a table, and record it.

    :raises ServerError: ACCESS_DENIED.
    """
    record_act(action.name, secured_table(table), context)
    require(action, table, context.session.user, context.services)


def record_act(act: str, on: SecuredObject, context: Context) -> None:
    """Record an act of a statement on an object, which is about to be judged."""
    context.record.add(act, on.kind.value, on.full_name)


def require_on(action: Action, on: SecuredObject, user: str, rights: Rights | None) -> None:
    """Require that a user with these rights may perform an action on an object.

    :raises ServerError: ACCESS_DENIED.
    """
    if rights is not None and not rights.may(action, on):
        hint = "" if action is Action.OWN else _ASK
        raise access_error(user, action.value, str(on), hint)


def access_error(user: str, privilege: str, what: str, hint: str = "") -> ServerError:
    """Return the error for a missing privilege."""
    return error(Code.ACCESS_DENIED, user=user, privilege=privilege, object=what, hint=hint)


def feature_error(feature: str, what: str, user: str) -> ServerError:
    hint = ALLOWED_BY.format(feature=feature) if feature in get_args(Hazard) else ""
    return access_error(user, "administration", f"{feature}: {what}", hint)
