/** Dialogs that make, change or remove something, and texts that are shown once. */

import { Button, Modal, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { toProblem } from '../api/client.ts'
import { refresh } from '../api/queries.ts'
import { Icon } from './icons.tsx'
import { SmallButton } from './small-button.ts'
import { submitting } from './submitting.ts'

interface DialogProps {
  title: string
  button: string
  isReady: boolean
  onClose(): void
  act(): Promise<unknown>
  /** What is read again. */
  changed: readonly string[]
  isLoss?: boolean
  size?: string
  children: ReactNode
}

export const DialogFrame = ({
  title,
  size = 'md',
  onClose,
  children,
}: {
  title: string
  size?: string | undefined
  onClose(): void
  children: ReactNode
}) => (
  <Modal
    opened
    onClose={onClose}
    size={size}
    title={<span className="strong wrap">{title}</span>}
    closeButtonProps={{ 'aria-label': 'Close' }}
  >
    {children}
  </Modal>
)

/** The last line of a dialog. */
export const DialogButtons = ({ onClose, children }: { onClose(): void; children: ReactNode }) => (
  <div className="row apart">
    <Button variant="default" onClick={onClose}>
      Close
    </Button>
    {children}
  </div>
)

export const ProblemNote = ({ error }: { error: unknown }) => {
  if (error == null) return null
  const { message, requestId } = toProblem(error)
  return (
    <div className="note bad" role="alert">
      <span className="wrap">{message}</span>
      {requestId === null ? null : <span className="small dim wrap">{` Request ${requestId}`}</span>}
    </div>
  )
}

export const FormDialog = ({
  title,
  button,
  isReady,
  onClose,
  act,
  changed,
  isLoss = false,
  size,
  children,
}: DialogProps) => {
  const acting = useMutation({
    mutationFn: act,
    onSuccess: () => refresh(...changed),
  })
  const submit = submitting(() => {
    if (isReady) acting.mutate()
  })
  return (
    <DialogFrame title={title} size={size} onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        {children}
        <ProblemNote error={acting.error} />
        <DialogButtons onClose={onClose}>
          <Button type="submit" color={isLoss ? 'red' : 'blue'} loading={acting.isPending} disabled={!isReady}>
            {button}
          </Button>
        </DialogButtons>
      </form>
    </DialogFrame>
  )
}

export const NewButton = ({ children, onClick }: { children: string; onClick(): void }) => (
  <div>
    <Button leftSection={<Icon name="plus" size={14} />} onClick={onClick}>
      {children}
    </Button>
  </div>
)

/** Shown once: the server does not store it. */
export const Once = ({ label, value }: { label: string; value: string }) => (
  <div className="note warn stack tight" role="status">
    <strong>{label}: copy it now, it is not shown again.</strong>
    <Copied label={label} value={value} />
  </div>
)

/** A text to copy. */
export const Copied = ({ label, value }: { label: string; value: string }) => (
  <TextInput
    aria-label={label}
    readOnly
    value={value}
    styles={{ input: { fontFamily: 'var(--mono)' } }}
    rightSectionWidth={70}
    rightSection={
      <Button size="compact-xs" variant="default" onClick={() => void navigator.clipboard.writeText(value)}>
        Copy
      </Button>
    }
  />
)

interface TypedProps {
  name: string
  typed: string
  onType(text: string): void
}

/** Asks for the name of the record that will be lost. */
export const TypedName = ({ name, typed, onType }: TypedProps) => (
  <TextInput
    data-autofocus
    label={<span className="wrap">{`Type ${name} to delete it`}</span>}
    value={typed}
    onChange={(event) => onType(event.currentTarget.value)}
    autoComplete="off"
  />
)

interface RemoveProps {
  name: string
  what: string
  consequence: ReactNode
  changed: readonly string[]
  /** The name must be typed: what is deleted cannot be restored. */
  asksName?: boolean
  act(): Promise<unknown>
}

export const Remove = ({ name, what, consequence, changed, asksName = false, act }: RemoveProps) => {
  const [isAsked, setAsked] = useState(false)
  const [typed, setTyped] = useState('')
  return (
    <>
      <SmallButton aria-label={`${what} ${name}`.slice(0, 200)} onClick={() => setAsked(true)}>
        {what}
      </SmallButton>
      {isAsked ? (
        <FormDialog
          title={`${what} ${name}`}
          button={what}
          isReady={!asksName || typed === name}
          isLoss
          onClose={() => setAsked(false)}
          changed={changed}
          act={async () => {
            await act()
            setAsked(false)
          }}
        >
          <p>{consequence}</p>
          {asksName ? <TypedName name={name} typed={typed} onType={setTyped} /> : null}
        </FormDialog>
      ) : null}
    </>
  )
}
