import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** Returns a reference for an element, and whether a part of the element is on the screen. */
export function useVisible<Kind extends HTMLElement>(): [RefObject<Kind | null>, boolean] {
  const element = useRef<Kind>(null);
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    const found = element.current;
    if (found === null) return;
    const observer = new IntersectionObserver((entries) =>
      setVisible(entries.at(-1)?.isIntersecting ?? false),
    );
    observer.observe(found);
    return () => observer.disconnect();
  }, []);
  return [element, isVisible];
}
