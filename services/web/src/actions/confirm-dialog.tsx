import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** A dialog that asks before something is done. The browser keeps the focus in it, and Escape closes it. */
export function ConfirmDialog({
  title,
  confirm,
  isDangerous = false,
  onConfirm,
  onClose,
  children,
}: {
  title: string;
  /** The text of the button that does it. */
  confirm: string;
  isDangerous?: boolean;
  onConfirm: () => void;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} class="card dialog" aria-label={title} onClose={onClose}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          onConfirm();
          dialog.current?.close();
        }}
      >
        <h2>{title}</h2>
        {children}
        <div class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>
            Back
          </button>
          <button type="submit" class={isDangerous ? "danger" : "primary"}>
            {confirm}
          </button>
        </div>
      </form>
    </dialog>
  );
}
