// Long work in short parts: between two of them the page draws, scrolls and answers.
const BUDGET_MS = 3; // of a frame's 16; style, layout and paint of what changed need theirs

export class Slices {
  // What is asked for while work goes on waits for its end: a stream of changes never starves the last parts.
  // `parts` is a generator function; between two steps the page may draw.
  do(parts) {
    this.waiting = parts;
    this.frame ??= requestAnimationFrame(() => this.step());
  }

  // For what the viewer did: the work that goes on is of no interest any more, and the first part is done at once.
  anew(parts) {
    this.close();
    this.waiting = parts;
    this.step();
  }

  step() {
    const end = performance.now() + BUDGET_MS;
    this.frame = null;
    do {
      if (!this.going && this.waiting) [this.going, this.waiting] = [this.waiting(), null];
      if (!this.going) return;
      if (this.going.next().done) this.going = null;
    } while (performance.now() < end);
    this.frame = requestAnimationFrame(() => this.step());
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.frame = this.going = this.waiting = null;
  }
}
