// The moment that all pages show, and the way back to the present.

import { at, showMoment } from "../moment";

export function TimeBar() {
  const moment = at.value;
  if (moment === null) return null;
  return (
    <section class="banner past" aria-label="Moment">
      <span>
        The cluster as it was at <b class="number">{moment}</b>
      </span>
      <button type="button" onClick={() => showMoment(null)}>
        Back to now
      </button>
    </section>
  );
}
