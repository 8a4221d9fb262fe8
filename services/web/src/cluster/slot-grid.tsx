import { formatPlural } from "../formats";
import { Cells } from "../parts/cells";
import { type ClusterSlots, countFree, hueOf, type TaskExecutorSlots } from "./cluster-slots";

const COLUMNS = 20;

/** The slots of a TaskExecutor: a square each, in the colour of its job. */
export function SlotGrid({ executor, jobs }: { executor: TaskExecutorSlots; jobs: ClusterSlots["jobs"] }) {
  const requested = new Set(executor.requested);
  return (
    <Cells
      classes={executor.slots.map((job, slot) => hueOf(job) + (requested.has(slot) ? " requested" : ""))}
      columns={COLUMNS}
      label={`${formatPlural(executor.slots.length, "slot")}, ${countFree(executor)} free`}
      describe={(slot) => {
        const holder =
          jobs[executor.slots[slot] ?? -1]?.name ?? (executor.slots[slot] === -1 ? "free" : "held");
        return `Slot ${slot}: ${holder}${requested.has(slot) ? " (requested)" : ""}`;
      }}
    />
  );
}
