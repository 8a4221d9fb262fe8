import { useState } from "preact/hooks";
import { Empty } from "../parts/states";
import { changeQuery, route } from "../routing";
import { StoryView } from "./story-view";

/** Asks for an entity, and tells its story. */
export function StoryPage() {
  const { entity = "" } = route.value.query;
  const [text, setText] = useState(entity);
  return (
    <>
      <h1>Story</h1>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          changeQuery({ entity: text.trim() || null });
        }}
      >
        <label>
          Job, TaskExecutor, slot, checkpoint or role
          <input
            value={text}
            placeholder="An id, a name, or KIND:ID"
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="primary">
          Tell
        </button>
      </form>
      {entity === "" ? <Empty>Name what the story is about.</Empty> : <StoryView entity={entity} />}
    </>
  );
}
