"""A connection: one session on a HiveServer2."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, overload

from tidegate.batches import MAX_BYTES
from tidegate.cursor import Cursor
from tidegate.dsn import ConnectOptions
from tidegate.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
    server_message,
)
from tidegate.materialized.tables import MaterializedTables
from tidegate.network.auth import authorization, default_user
from tidegate.network.channel import Channel, ChannelBroken, TransportFactory
from tidegate.network.http import HttpTransport
from tidegate.network.line import Line, SessionGoneError
from tidegate.network.retries import RetryPolicy
from tidegate.network.tls import tls_context
from tidegate.network.transport import SocketTransport
from tidegate.operation import cancel_request
from tidegate.rows import Row, RowFactory
from tidegate.status import check
from tidegate.wire.service import ttypes

OtherRow = TypeVar("OtherRow")

logger = logging.getLogger(__name__)

RESULT_FORMAT: Final = "tidegate.result.format"
"""The OpenSession key by which client and server agree on Arrow."""

_SUGGESTED_FETCH_SIZE: Final = "hive.server2.thrift.resultset.default.fetch.size"
_DEFAULT_FETCH_SIZE: Final = 10_000
_RESUME: Final = "tidegate.session.resume"
# Such pages cost both sides a third less than those of rows, whose objects should fit in a cache.
# The server bounds the bytes of a page.
_TABLE_FETCH_SIZE: Final = 50_000
_QUALIFIED: Final = ("hivevar:", "hiveconf:", "system:", "env:", "metaconf:")


class Connection(Generic[Row]):
    """A session on the server; made by ``tidegate.connect``.

    Threads may share it: their calls run one at a time. There are no transactions: every
    statement is committed by itself.
    """

    # PEP 249 has the exceptions here too, for code that gets a connection of any driver.
    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(
        self,
        options: ConnectOptions,
        *,
        transport: TransportFactory | None = None,
        row_factory: RowFactory[Row],
    ) -> None:
        """Open the session.

        :raises OperationalError: if the server cannot be reached or refuses.
        """
        self.row_factory = row_factory
        self._options = options
        self._tls = tls_context(options)
        self._transport = transport
        self._closing = threading.Lock()
        self._closed = False
        self._max_batch_bytes: int | None = None
        self._alternatives = options.alternatives()
        channel = self._connect(self._alternatives)
        channel.set_timeout(options.timeout)
        self.resumable = self.server_settings.get(_RESUME) == "true"
        """Whether the server keeps the session when the connection is lost."""
        self._line = Line(
            channel,
            reopen=self._reattach if self.resumable else None,
            policy=RetryPolicy(options.retries, options.retry_timeout),
        )

    def _connect(self, alternatives: Sequence[ConnectOptions]) -> Channel:
        """Open the session on the first server that can be used.

        Only what fails before a session is open leads to the next one, so nothing is done twice.
        """
        failures = []
        for options in alternatives:
            self._options = options
            try:
                return self._connect_to(options)
            except OperationalError as error:
                # A server that refuses the login is up; the others would refuse it, too.
                if len(alternatives) == 1 or not (error.sqlstate or "").startswith("08"):
                    raise
                logger.info("%s cannot be used: %s", options.address, error)
                failures.append(error)
        raise OperationalError(
            f"none of {len(alternatives)} servers can be used: {'; '.join(map(str, failures))}",
            sqlstate="08001",
            hint="Check hosts and ports, and that one of the servers runs.",
        ) from failures[-1]

    def _connect_to(self, options: ConnectOptions) -> Channel:
        channel = self._channel_to(options)
        try:
            self._open_session(channel, options)
        except ChannelBroken as error:
            raise _no_session(options, error) from error
        except BaseException as error:
            lost = channel.closed
            channel.close()
            if lost and isinstance(error, OperationalError) and error.sqlstate != "28000":
                raise _no_session(options, error) from error
            raise
        return channel

    def _reattach(self, seconds: float) -> Channel:
        """Return a channel to a host that knows the session; the last one is tried first.

        :param seconds: the time in which each host must answer.
        :raises SessionGoneError: if all hosts answer, and none knows the session.
        :raises OperationalError: if one of them may know it but does not answer.
        """
        unreachable: OperationalError | None = None
        current = self._options
        for each in (current, *(each for each in self._alternatives if each != current)):
            limit = min(each.connect_timeout, seconds)
            try:
                channel = self._resumed(replace(each, connect_timeout=limit))
            except OperationalError as error:
                if not (error.sqlstate or "").startswith("08"):
                    raise SessionGoneError(str(error)) from error
                unreachable = unreachable or error
                continue
            if channel is not None:
                self._options = each
                channel.set_timeout(each.timeout)
                return channel
        if unreachable is not None:
            raise unreachable
        raise SessionGoneError("the server no longer knows the session")

    def _resumed(self, options: ConnectOptions) -> Channel | None:
        """Return a channel to the session; None if the server does not know it."""
        channel = self._channel_to(options)
        request = ttypes.TGetInfoReq(self._handle, ttypes.TGetInfoType.CLI_SERVER_NAME)
        try:
            status = channel.call("GetInfo", request).status
            if status.statusCode == ttypes.TStatusCode.INVALID_HANDLE_STATUS:
                channel.close()
                return None
            check(status)
        except ChannelBroken as error:
            raise _no_session(options, error) from error
        except BaseException:
            channel.close()
            raise
        return channel

    def _channel_to(self, options: ConnectOptions) -> Channel:
        return Channel(options, self._transport or partial(self._dial, options))

    def _dial(self, options: ConnectOptions) -> SocketTransport | HttpTransport:
        timeout, tls = options.connect_timeout, self._tls
        if options.transport == "binary":
            address = options.socket or (options.host, options.port)
            return SocketTransport(address, timeout=timeout, tls=tls)
        return HttpTransport(
            options.host,
            options.port,
            path=options.http_path,
            authorization=partial(authorization, options),
            timeout=timeout,
            tls=tls,
        )

    def _open_session(self, channel: Channel, options: ConnectOptions) -> None:
        request = ttypes.TOpenSessionReq(
            client_protocol=ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10,
            username=options.user or default_user(),
            password=options.password or "anonymous",
            configuration=_configuration(options),
        )
        try:
            reply = channel.call("OpenSession", request)
        except OperationalError as error:
            if "client_protocol" not in str(error):
                raise
            # Java reads an unknown version as if none was sent. Every server since
            # Hive 0.13 knows V6, the first one with columns.
            request.client_protocol = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6
            reply = channel.call("OpenSession", request)
        check(reply.status)
        found = map(server_message, reply.status.infoMessages or ())
        self.messages = [(type(message), message) for message in found]
        """The server's warnings about the settings of the session, as PEP 249 has them."""
        self._handle = reply.sessionHandle
        self.server_settings: Mapping[str, str] = reply.configuration or {}
        """The server's messages about the opening of the session."""
        self.native = RESULT_FORMAT in self.server_settings
        """Whether the server supports Tidegate's extensions."""
        self.sends_arrow = self.server_settings.get(RESULT_FORMAT) == "arrow"
        """Whether results arrive in Arrow's format."""
        self.fetch_size = options.fetch_size or _suggested_fetch_size(self.server_settings)
        """Rows per fetch."""
        self.table_fetch_size = self.fetch_size
        """Rows per fetch of a whole Arrow table, or of batches of one."""
        if self.sends_arrow and options.fetch_size is None:
            self.table_fetch_size = max(self.fetch_size, _TABLE_FETCH_SIZE)
        logger.info("session opened on %s as %s", options.address, options.user or "default")

    def __repr__(self) -> str:
        options = self._options
        state = ", closed" if self.closed else ""
        user = options.user or default_user()
        return f"<tidegate.Connection to {options.address} as {user}{state}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed or the connection to the server is lost."""
        return self._closed or self._line.closed

    @property
    def query_timeout(self) -> int:
        """Seconds a statement may run on the server; 0 for any time."""
        return self._options.query_timeout

    @property
    def session_handle(self) -> Any:
        """The server's handle of the session, for custom calls."""
        return self._handle

    @property
    def materialized_tables(self) -> MaterializedTables:
        """The materialized tables of the server, as typed records."""
        return MaterializedTables(self)

    @overload
    def cursor(self, row_factory: None = None) -> Cursor[Row]: ...
    @overload
    def cursor(self, row_factory: RowFactory[OtherRow]) -> Cursor[OtherRow]: ...
    def cursor(self, row_factory: RowFactory[Any] | None = None) -> Cursor[Any]:
        """Return a new cursor; ``row_factory`` overrides the connection's.

        :raises InterfaceError: if the connection was closed.
        """
        self._refuse_closed()
        return Cursor(self, row_factory or self.row_factory)

    def call(self, name: str, request: Any) -> Any:
        """Run one call of the service and return its reply, whose status may be an error.

        :raises InterfaceError: if the connection was closed.
        :raises OperationalError: if it breaks now and the session cannot be resumed, or the call
            must not be repeated; the connection counts as closed from then on.
        """
        self._refuse_closed()
        return self._line.call(name, request)

    def call_aside(self, name: str, request: Any) -> Any:
        """As ``call``, but over another connection, so as not to wait for a call in progress."""
        self._refuse_closed()
        if not self._line.busy:
            return self._line.call(name, request)
        aside = self._channel_to(self._options)
        try:
            return aside.call(name, request)
        except ChannelBroken as error:
            raise OperationalError(f"connection lost: {error}", sqlstate="08006") from error
        finally:
            aside.close()

    def ping(self) -> None:
        """Ask the server for its name, which also keeps an idle session alive.

        :raises OperationalError: if it does not answer or does not know the session.
        """
        request = ttypes.TGetInfoReq(self._handle, ttypes.TGetInfoType.CLI_SERVER_NAME)
        check(self.call("GetInfo", request).status)

    def max_batch_bytes(self) -> int:
        """Return how large a statement with many rows may be, by what the server announces.

        The server is asked once. One that does not answer announces no limit.
        """
        if self._max_batch_bytes is None:
            request = ttypes.TGetInfoReq(self._handle, ttypes.TGetInfoType.CLI_MAX_STATEMENT_LEN)
            try:
                reply = self.call("GetInfo", request)
                check(reply.status)
                announced = reply.infoValue.lenValue
            except Error as error:
                logger.debug("The server announces no limit on statements: %s", error)
                announced = None
            self._max_batch_bytes = min(announced or MAX_BYTES, MAX_BYTES)
        return self._max_batch_bytes

    def cancel_operation(self, handle: str) -> None:
        """Cancel a statement, also of another connection, by its ``Cursor.operation_handle``.

        :raises ProgrammingError: if the text is not a handle.
        :raises Error: if the server does not know the operation, or refuses.
        """
        try:
            request = cancel_request(handle)
        except ValueError:
            raise ProgrammingError(f"{handle!r} is not the handle of an operation") from None
        check(self.call("CancelOperation", request).status)

    def delegation_token(self, *, renewer: str = "", owner: str | None = None) -> str:
        """Return a token with which a program can log in for a while with ``auth="TOKEN"``.

        :raises Error: if the server gives none out, or not for this owner.
        """
        request = ttypes.TGetDelegationTokenReq(self._handle, owner or "", renewer)
        reply = self.call("GetDelegationToken", request)
        check(reply.status)
        return str(reply.delegationToken)

    def renew_delegation_token(self, token: str) -> None:
        """Extend the lifetime of a token; only its renewer can.

        :raises Error: if the server refuses.
        """
        request = ttypes.TRenewDelegationTokenReq(self._handle, token)
        check(self.call("RenewDelegationToken", request).status)

    def cancel_delegation_token(self, token: str) -> None:
        """Revoke a token.

        :raises Error: if the server refuses.
        """
        request = ttypes.TCancelDelegationTokenReq(self._handle, token)
        check(self.call("CancelDelegationToken", request).status)

    def is_alive(self) -> bool:
        """Return whether the session can still be used."""
        try:
            self.ping()
        except Error as error:
            logger.debug("the session does not answer: %s", error)
            return False
        return True

    def commit(self) -> None:
        """Do nothing: every statement is committed by itself."""
        self._refuse_closed()

    def rollback(self) -> None:
        """Refuse: there is no transaction to undo.

        :raises NotSupportedError: always.
        """
        self._refuse_closed()
        raise NotSupportedError(
            "there are no transactions: every statement is committed by itself", sqlstate="0A000"
        )

    def close(self) -> None:
        """Close the session on the server; later calls do nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            if not self._line.closed:
                self._line.call("CloseSession", ttypes.TCloseSessionReq(self._handle))
        except OperationalError as error:
            # The server ends the sessions of a lost connection by itself.
            logger.debug("the session could not be closed: %s", error)
        finally:
            self._line.close()

    def abort(self) -> None:
        """Hang up without a word to the server, which ends the session by itself.

        It never blocks, and also frees threads that wait for a reply.
        """
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed", sqlstate="08003")


def _no_session(options: ConnectOptions, error: Exception) -> OperationalError:
    return OperationalError(
        f"{options.address} accepted the connection but opened no session: {error}",
        sqlstate="08001",
        hint=f"Check that it is a HiveServer2 and expects auth={options.auth}.",
    )


def _configuration(options: ConnectOptions) -> dict[str, str]:
    settings = {_setting(key): str(value) for key, value in options.settings.items()}
    arrow = {RESULT_FORMAT: "arrow"} if find_spec("pyarrow") is not None else {}
    return {
        "use:database": options.schema,
        **arrow,
        **settings,
    }


def _setting(key: str) -> str:
    if key.startswith(("set:", "use:")) or key == "hive.server2.proxy.user":
        return key
    return f"set:{key}" if key.startswith(_QUALIFIED) else f"set:hiveconf:{key}"


def _suggested_fetch_size(settings: Mapping[str, str]) -> int:
    text = settings.get(_SUGGESTED_FETCH_SIZE, "")
    return int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_FETCH_SIZE
