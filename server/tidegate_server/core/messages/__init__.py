"""The messages between gateway and engine: frozen records, encoded as MessagePack.

Transport is Arrow Flight. A request is an action named after its class; its answers are the
action's result stream: any number of :class:`~.answers.Progress`, then one answer, or
:class:`~.answers.Failure`. Results of queries come by DoGet with a
:class:`~.requests.ChunkTicket`; small ones are part of :class:`~.answers.Executed`.
"""
