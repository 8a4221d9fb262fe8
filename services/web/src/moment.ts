// The moment that every page shows: an offset or a time of the log, or the present.

import { computed } from "@preact/signals";
import { changeQuery, route } from "./routing";

/** The moment, as `?at=` of a request takes it; null: the present. */
export const at = computed(() => route.value.query.at ?? null);

/** Shows all pages as of a moment; null: as of now. */
export function showMoment(moment: string | null, replace = false): void {
  changeQuery({ at: moment }, replace);
}

/** Returns the offset that a moment is; null for a time and for the present. */
export function toOffset(moment: string | null): number | null {
  return moment !== null && /^\d+$/.test(moment) ? Number(moment) : null;
}
