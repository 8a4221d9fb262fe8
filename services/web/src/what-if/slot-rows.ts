// What the diagram shows: a row for each slot, with who held it in the simulation and who really held it.

import type { WhatIfResult, WhatIfSlot } from "../api/openapi";

export interface SlotRow {
  readonly name: string;
  /** undefined: the slot was not there. */
  readonly really: WhatIfSlot | undefined;
  readonly simulated: WhatIfSlot | undefined;
}

/** Returns the slots of both parts, by TaskExecutor and number. */
export function toRows(result: WhatIfResult): SlotRow[] {
  const really = indexSlots(result.really?.slots ?? []);
  const simulated = indexSlots(result.what_if.slots);
  const known = new Map([...really, ...simulated]);
  return [...known]
    .sort(
      ([, one], [, other]) => compareNames(one.task_executor, other.task_executor) || one.slot - other.slot,
    )
    .map(([name]) => ({ name, really: really.get(name), simulated: simulated.get(name) }));
}

function indexSlots(slots: readonly WhatIfSlot[]): Map<string, WhatIfSlot> {
  return new Map(slots.map((slot) => [`${slot.task_executor}/${slot.slot}`, slot]));
}

/** Orders te-2 before te-10. */
function compareNames(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}

/** Returns the name of a job, with its id if another one has the same name. */
export function labelOf(result: WhatIfResult, place: number): string {
  const job = result.jobs[place];
  if (job === undefined) return "";
  const isUnique = result.jobs.every((each) => each === job || each.name !== job.name);
  return isUnique ? job.name : `${job.name} (${job.job_id})`;
}
