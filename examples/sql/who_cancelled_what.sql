-- Who cancelled which job, what became of it, and how long that took.
SELECT c.time, c.sender AS who, c.job_id, a.name AS job,
       CASE
           WHEN f.offset < c.offset THEN concat('had ended: ', f.status)
           WHEN r.offset IS NOT NULL THEN concat('rejected: ', r.reason)
           ELSE f.status
       END AS outcome,
       CASE WHEN f.offset > c.offset THEN f.time - c.time END AS took
FROM dispatcher_CancelJob c
LEFT JOIN client_JobAccepted a ON a.job_id = c.job_id
LEFT JOIN client_JobFinished f ON f.job_id = c.job_id
LEFT JOIN client_CancelJobRejected r ON r.cause = c.offset
ORDER BY c.offset;
