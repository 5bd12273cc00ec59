/** Dialogs that make or remove something of an organization. */
import { Button, Modal, TextInput } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, type ReactNode, useState } from 'react'
import { Icon } from '../../ui/icons.tsx'

interface DialogProps {
  title: string
  button: string
  isReady: boolean
  onClose(): void
  act(): Promise<unknown>
  /** What is read again. */
  changed: string
  children: ReactNode
}

export const FormDialog = ({ title, button, isReady, onClose, act, changed, children }: DialogProps) => {
  const queries = useQueryClient()
  const acting = useMutation({
    mutationFn: act,
    onSuccess: () => void queries.invalidateQueries({ queryKey: [changed] }),
  })
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    acting.mutate()
  }
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ 'aria-label': 'Close' }}>
      <form className="stack" onSubmit={submit}>
        {children}
        {acting.error === null ? null : (
          <div className="note bad" role="alert">
            {acting.error.message}
          </div>
        )}
        <Button type="submit" loading={acting.isPending} disabled={!isReady}>
          {button}
        </Button>
      </form>
    </Modal>
  )
}

export const NewButton = ({ children, onClick }: { children: string; onClick(): void }) => (
  <div>
    <Button leftSection={<Icon name="plus" size={14} />} onClick={onClick}>
      {children}
    </Button>
  </div>
)

/** Shown once: the server keeps none of it. */
export const Once = ({ label, value }: { label: string; value: string }) => (
  <div className="note warn stack tight">
    <strong>{label}: copy it now, it is not shown again.</strong>
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
  </div>
)

interface RemoveProps {
  name: string
  what: string
  consequence: string
  changed: string
  act(): Promise<unknown>
}

export const Remove = ({ name, what, consequence, changed, act }: RemoveProps) => {
  const [isAsked, setAsked] = useState(false)
  return (
    <>
      <Button size="compact-sm" variant="default" onClick={() => setAsked(true)}>
        {what}
      </Button>
      {isAsked ? (
        <FormDialog
          title={`${what} ${name}`}
          button={what}
          isReady
          onClose={() => setAsked(false)}
          changed={changed}
          act={async () => {
            await act()
            setAsked(false)
          }}
        >
          <p>{consequence}</p>
        </FormDialog>
      ) : null}
    </>
  )
}
