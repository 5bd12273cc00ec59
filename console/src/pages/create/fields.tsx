/** Fields that several creation forms share. */

import { NumberInput, Switch, TextInput } from '@mantine/core'
import type { ReactNode } from 'react'
import { SmallButton } from '../../ui/small-button.ts'

export type Body = Record<string, unknown>

export interface FormProps {
  body: Body
  change(fields: Body): void
  problem(field: string): string | undefined
  environmentId: string
}

/** The last part of an address is a good name, in the letters that names have. */
export const nameFrom = (text: string): string =>
  (
    text
      .replace(/(\.git)?\/*$/, '')
      .split(/[/:]/)
      .at(-1) ?? ''
  )
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')

const portOf = (body: Body) =>
  (body.ports as { internal_port: number; publicly_accessible: boolean }[] | undefined)?.[0]

export const PortFields = ({ body, change, problem }: Omit<FormProps, 'environmentId'>) => {
  const port = portOf(body)
  const put = (number: number | null, isPublic: boolean): void =>
    change({
      ports:
        number === null
          ? []
          : [{ internal_port: number, external_port: 443, protocol: 'HTTP', publicly_accessible: isPublic }],
    })
  return (
    <div className="stack">
      <NumberInput
        label="Port"
        description="The port that it listens on for HTTP. Leave it empty if it has none."
        min={1}
        max={65_535}
        hideControls
        value={port?.internal_port ?? ''}
        onChange={(value) => put(typeof value === 'number' ? value : null, port?.publicly_accessible ?? true)}
        error={problem('/ports')}
      />
      <Switch
        label="Public: it gets an address"
        disabled={port === undefined}
        checked={port?.publicly_accessible ?? false}
        onChange={(event) => put(port!.internal_port, event.currentTarget.checked)}
      />
    </div>
  )
}

export const NameField = ({ body, change, problem }: Omit<FormProps, 'environmentId'>) => (
  <TextInput
    label="Name"
    required
    value={String(body.name ?? '')}
    onChange={(event) => change({ name: event.currentTarget.value })}
    error={problem('/name')}
  />
)

interface LookProps {
  label: string
  isDisabled: boolean
  looking: { isPending: boolean; error: Error | null; mutate(): void }
  /** The result. */
  children: ReactNode
}

/** Reads a repository, and shows the result. */
export const Look = ({ label, isDisabled, looking, children }: LookProps) => (
  <div className="row wraps">
    <SmallButton disabled={isDisabled} loading={looking.isPending} onClick={() => looking.mutate()}>
      {label}
    </SmallButton>
    <span role="status" className="small wrap">
      {looking.error === null ? children : <span className="bad-text">{looking.error.message}</span>}
    </span>
  </div>
)
