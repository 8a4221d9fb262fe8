"""What a process tells about itself on request, and the log does not have: metrics, log files, stacks.

Each jobmanager and each TaskExecutor has one small server (server.py), which does nothing until somebody asks. REST
servers ask it (client.py); the log has its address. The port for Prometheus is the same server with one path.
"""
