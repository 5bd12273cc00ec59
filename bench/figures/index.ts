/** Every figure, in the order of the report: those of the API first, while the machine is quiet. */
import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { figure as figure1a } from './1a.ts'
import { figure as figure1b } from './1b.ts'
import { figure as figure1c } from './1c.ts'
import { figure as figure1d } from './1d.ts'
import { figure as figure1e } from './1e.ts'
import { figure as figure2a } from './2a.ts'
import { figure as figure2b } from './2b.ts'
import { figure as figure2c } from './2c.ts'
import { figure as figure2d } from './2d.ts'
import { figure as figure2e } from './2e.ts'
import { figure as figure2f } from './2f.ts'
import { figure as figure3 } from './3.ts'
import { figure as figure4 } from './4.ts'
import { figure as figure5 } from './5.ts'
import { figure as figure6 } from './6.ts'
import { figure as figure7 } from './7.ts'
import { figure as figure8 } from './8.ts'
import { figure as figure9 } from './9.ts'
import { figure as figure10 } from './10.ts'
import { figure as figure10b } from './10b.ts'
import { figure as figure11 } from './11.ts'
import { figure as figure12 } from './12.ts'

export const figures: Figure<Bench>[] = [
  figure1a,
  figure1b,
  figure1c,
  figure1d,
  figure1e,
  figure2a,
  figure2b,
  figure2c,
  figure2d,
  figure2e,
  figure2f,
  figure3,
  figure4,
  figure5,
  figure6,
  figure8,
  figure9,
  figure10,
  figure10b,
  figure11,
  figure12,
  // Last: what it leaves in the tables would weigh on the others.
  figure7,
]
