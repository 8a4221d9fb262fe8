-- How long checkpoints take, by job: from the trigger to the last acknowledgement.
SELECT t.job_id, any_value(a.name) AS job,
       count(*) AS triggered,
       count(c.offset) AS completed,
       count(x.offset) AS aborted,
       median(unix_micros(c.time) - unix_micros(t.time)) / 1000 AS median_ms,
       max(unix_micros(c.time) - unix_micros(t.time)) / 1000 AS longest_ms,
       max(c.checkpoint.size) AS largest_bytes
FROM job_master_CheckpointTriggered t
LEFT JOIN job_master_CheckpointCompleted c
       ON c.job_id = t.job_id AND c.checkpoint.checkpoint_id = t.checkpoint_id
LEFT JOIN job_master_CheckpointAborted x
       ON x.job_id = t.job_id AND x.checkpoint_id = t.checkpoint_id
LEFT JOIN client_JobAccepted a ON a.job_id = t.job_id
GROUP BY t.job_id
ORDER BY t.job_id;
