-- Mean time to recover, by job: from the failure of a task, or the loss of its TaskExecutor,
-- until the next attempt of the same subtask runs.
WITH tasks AS (
    SELECT offset, job_id, vertex_id, task.subtask_index, task.execution_attempt_id, resource_id FROM (
        SELECT offset, job_id, vertex_id, explode(subtasks) AS task,
               substring_index(recipient, '/', -1) AS resource_id
        FROM task_executor_SubmitTask
    )
),
states AS (
    SELECT offset, time, execution_attempt_id, execution_state AS state FROM job_master_UpdateTaskExecutionState
    UNION ALL
    SELECT l.offset, l.time, t.execution_attempt_id, 'LOST'
    FROM tasks t JOIN everyone_TaskExecutorLost l ON l.resource_id = t.resource_id AND l.offset > t.offset
),
ended AS (
    SELECT execution_attempt_id, min(offset) AS offset, min_by(time, offset) AS time, min_by(state, offset) AS state
    FROM states
    WHERE state IN ('FINISHED', 'CANCELED', 'FAILED', 'LOST')
    GROUP BY execution_attempt_id
),
failures AS (
    SELECT t.job_id, t.vertex_id, t.subtask_index, e.offset, e.time
    FROM tasks t JOIN ended e USING (execution_attempt_id)
    WHERE e.state IN ('FAILED', 'LOST')
),
running AS (
    SELECT t.job_id, t.vertex_id, t.subtask_index, s.offset, s.time
    FROM tasks t JOIN states s USING (execution_attempt_id)
    WHERE s.state = 'RUNNING'
),
recoveries AS (
    SELECT f.job_id, f.offset, f.time AS failed, min_by(r.time, r.offset) AS running_again
    FROM failures f
    LEFT JOIN running r ON r.job_id = f.job_id AND r.vertex_id = f.vertex_id
                       AND r.subtask_index = f.subtask_index AND r.offset > f.offset
    GROUP BY f.job_id, f.vertex_id, f.subtask_index, f.offset, f.time
)
SELECT job_id, count(*) AS failures, count(running_again) AS recovered,
       avg(running_again - failed) AS mean_time_to_recover,
       max(running_again - failed) AS longest
FROM recoveries
GROUP BY job_id
ORDER BY job_id;
