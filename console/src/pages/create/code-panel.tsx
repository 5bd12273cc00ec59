/** The form as code, in several languages: each can be copied. */

import { SegmentedControl } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import * as read from '../../api/queries.ts'
import { Icon } from '../../ui/icons.tsx'
import { optionsOf } from '../../ui/record-form.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { tell } from '../../ui/toasts.tsx'
import type { Code, Names } from './code.ts'

export const useNames = (environmentId: string): Names => {
  const { data } = useQuery(read.environment(environmentId))
  const { data: organizations = [] } = useQuery(read.organizations())
  const { data: project } = useQuery({ ...read.project(data?.project.id ?? ''), enabled: data !== undefined })
  return {
    origin: location.origin,
    organization: organizations.find(({ id }) => id === data?.organization.id)?.name ?? '',
    project: project?.name ?? '',
    environment: data?.name ?? '',
  }
}

const words = { curl: 'curl', cli: 'Command line', terraform: 'Terraform' }

/** `code` is called only while it is shown. */
export const CodePanel = ({ code }: { code(): Code }) => {
  const [isOpen, open] = useState(false)
  const [way, setWay] = useState<keyof Code>('curl')
  return (
    <details onToggle={(event) => open(event.currentTarget.open)}>
      <summary className="dim">The same with curl, on the command line, or with Terraform</summary>
      {isOpen ? <Shown text={code()[way]} way={way} setWay={setWay} /> : null}
    </details>
  )
}

const Shown = ({ text, way, setWay }: { text: string; way: keyof Code; setWay(way: keyof Code): void }) => (
  <div className="stack" style={{ marginTop: 10 }}>
    <div className="row wraps">
      <SegmentedControl
        aria-label="In which way"
        size="xs"
        data={optionsOf(words)}
        value={way}
        onChange={(value) => setWay(value as keyof Code)}
      />
      <SmallButton
        leftSection={<Icon name="copy" size={13} />}
        onClick={() => void navigator.clipboard?.writeText(text).then(() => tell('It was copied.'))}
      >
        Copy
      </SmallButton>
    </div>
    {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard */}
    <pre className="code" tabIndex={0}>
      {text}
    </pre>
  </div>
)
