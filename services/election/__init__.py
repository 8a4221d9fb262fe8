"""Leader election for masters, and leader retrieval (Flink's LeaderElectionService and LeaderRetrievalService).

The log decides who leads (services/core/leadership.py). An election only gives the right to claim leadership in the
log.
"""
