-- Slots there are and slots in use, whenever one of the two changed. What TaskExecutors say of their slots counts:
-- all of them when they register (SendSlotReport), then each that is taken or free again; and whether they are there.
-- (Of what a deposed leader says, nobody takes notice; this query does.)
WITH reports AS (
    SELECT offset, time, explode(slots) AS slot FROM resource_manager_SendSlotReport
),
gone AS (
    -- What was there before: a report has all slots that there are from then on.
    SELECT offset, time, resource_id FROM resource_manager_SendSlotReport
    UNION ALL
    SELECT offset, time, resource_id FROM everyone_TaskExecutorLost
    UNION ALL
    SELECT offset, time, resource_id FROM resource_manager_DisconnectTaskManager
),
slots AS (
    SELECT offset, time, slot.slot_id AS slot_id, 1 AS there, int(slot.allocation_id IS NOT NULL) AS used FROM reports
    UNION ALL
    SELECT offset, time, slot_id, 1, 1 FROM resource_manager_SlotRequestAccepted
    UNION ALL
    SELECT offset, time, slot_id, 1, 0 FROM resource_manager_NotifySlotAvailable
    UNION ALL
    SELECT l.offset, l.time, s.slot_id, 0, 0
    FROM gone l
    JOIN (SELECT DISTINCT slot.slot_id FROM reports) s ON s.slot_id.resource_id = l.resource_id
),
changes AS (
    SELECT offset, time,
           there - lag(there, 1, 0) OVER w AS there,
           used - lag(used, 1, 0) OVER w AS used
    FROM slots
    WINDOW w AS (PARTITION BY slot_id.resource_id, slot_id.slot_number ORDER BY offset, there)
),
moments AS (
    SELECT offset, any_value(time) AS time, sum(there) AS there, sum(used) AS used
    FROM changes
    GROUP BY offset
    HAVING sum(there) <> 0 OR sum(used) <> 0
)
SELECT offset, time,
       sum(used) OVER (ORDER BY offset) AS used,
       sum(there) OVER (ORDER BY offset) AS slots,
       round(try_divide(100 * sum(used) OVER (ORDER BY offset), sum(there) OVER (ORDER BY offset)), 1) AS percent
FROM moments
ORDER BY offset;
