"""The history of one entity from the log: a line for each event, or for several similar ones; and causes and effects.

An EventAnnotator reads the log event by event and finds the entities that an event concerns (`entity_resolver`) and the
root cause of a failure (`failure_chains`). A `timeline` collects the lines of one entity and its `entity_status`;
`event_groups` makes their text. `cause_chains` walks from an event up to its root cause, and down to its effects.
`entity_lookup` finds the entity that a user names. `index_cache` keeps the annotator's knowledge beside the state
index.
"""
