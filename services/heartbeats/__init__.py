"""Who lives: heartbeats over the soft-state topic, and processes of this machine that are watched for their end.

What is found out here is said as facts by the shells; what follows from them, the roles decide.
"""
