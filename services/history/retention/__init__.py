"""The archive of a cluster's log in its storage, and the deletion of archived events from Kafka.

The leader writes old events of the log as Avro segments, verifies them, and then deletes them from the topic. Readers
of the history see archive and topic as one log (`ArchivedLog`).
"""
