/** Marks of control planes in the state of a fake engine. */
import { type Mark, type Marks, newestFirst } from '../marks.ts'
import type { FakeEngine } from './fake-engine.ts'

export const createFakeMarks = ({ state, restored, save }: FakeEngine): Marks => ({
  async list(scope) {
    await restored
    const own = (state.marks ?? []).filter((each) => each.scope === scope)
    return own.map(({ scope: _, ...mark }): Mark => mark).sort(newestFirst)
  },
  async put(scope, mark) {
    await restored
    state.marks ??= []
    const there = state.marks.find((each) => each.scope === scope && each.generation === mark.generation)
    if (there !== undefined) return { generation: there.generation, nonce: there.nonce, writer: there.writer }
    state.marks.push({ scope, ...mark })
    save()
    return mark
  },
  async remove(scope, { generation }) {
    await restored
    state.marks = (state.marks ?? []).filter((each) => each.scope !== scope || each.generation !== generation)
    save()
  },
  async clear() {
    await restored
    state.marks = []
    save()
  },
})
