-- Which TaskExecutor lost most tasks: those that failed on it, and those that were lost with it.
WITH tasks AS (
    SELECT offset, task.execution_attempt_id, resource_id FROM (
        SELECT offset, explode(subtasks) AS task, substring_index(recipient, '/', -1) AS resource_id
        FROM task_executor_SubmitTask
    )
),
ended AS (
    SELECT execution_attempt_id, min(offset) AS offset, min_by(execution_state, offset) AS state
    FROM job_master_UpdateTaskExecutionState
    WHERE execution_state IN ('FINISHED', 'CANCELED', 'FAILED')
    GROUP BY execution_attempt_id
),
lost AS (
    SELECT t.execution_attempt_id, min(l.offset) AS offset
    FROM tasks t JOIN everyone_TaskExecutorLost l ON l.resource_id = t.resource_id AND l.offset > t.offset
    GROUP BY t.execution_attempt_id
)
SELECT t.resource_id, count(*) AS tasks,
       count_if(e.state = 'FAILED') AS failed,
       count_if(l.offset IS NOT NULL AND e.offset IS NULL) AS lost_with_it
FROM tasks t
LEFT JOIN lost l USING (execution_attempt_id)
LEFT JOIN ended e ON e.execution_attempt_id = t.execution_attempt_id AND (l.offset IS NULL OR e.offset < l.offset)
GROUP BY t.resource_id
ORDER BY failed + lost_with_it DESC, t.resource_id;
