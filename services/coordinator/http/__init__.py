"""The admin API: what operators read and change over REST, on a listener of its own.

One file per resource holds its schemas, its handlers and its rows of the route table. ``routing`` says what a route
is, ``table`` gathers them, ``serving`` is the one shell around every handler (who asks, may they, how often, from a
body that fits its schema), ``proxying`` passes a standby's requests on to the leader, ``openapi`` describes it all from
the same schemas. The old figures of ``services.coordinator.http.peer_routes`` stay on the peer listener.
"""
