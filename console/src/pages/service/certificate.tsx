/** A certificate that somebody brings for a domain, in the place of one that is ordered. */
import { Button, Textarea } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, type Schemas, toProblem } from '../../api/client.ts'
import type * as read from '../../api/queries.ts'
import { DialogFrame } from '../../ui/dialog.tsx'
import { useMay } from '../../ui/place.ts'
import { submitting } from '../../ui/submitting.ts'
import { tell } from '../../ui/toasts.tsx'
import { oneDomainPath } from './domain-paths.ts'

interface Props {
  service: read.Service
  domain: Schemas['CustomDomain']
  onClose(): void
}

const certificatePath = (kind: read.Kind) =>
  `${oneDomainPath(kind)}/certificate` as '/container/{containerId}/customDomain/{customDomainId}/certificate'

const pem = { autosize: true, minRows: 5, maxRows: 10, required: true, spellCheck: false } as const
const mono = { input: { fontFamily: 'var(--mono)', fontSize: 12 } }

export const CertificateDialog = ({ service, domain, onClose }: Props) => {
  const queries = useQueryClient()
  const may = useMay()
  const [certificate, setCertificate] = useState('')
  const [key, setKey] = useState('')
  const params = { path: { containerId: service.id, customDomainId: domain.id } }
  const path = certificatePath(service.kind)
  const onSuccess = (): void => {
    void queries.invalidateQueries({ queryKey: ['domains'] })
    tell(`The certificate of ${domain.domain} was changed.`)
    onClose()
  }
  const bringing = useMutation({
    mutationFn: async () => {
      await answerOf(client.PUT(path, { params, body: { certificate, private_key: key } }))
    },
    onSuccess,
  })
  const removing = useMutation({
    mutationFn: async () => {
      await answerOf(client.DELETE(path, { params }))
    },
    onSuccess,
  })
  const error = bringing.error ?? removing.error
  const { details = [], message } = error === null ? {} : toProblem(error)
  const at = (field: string): string | undefined => details.find((each) => each.field === field)?.message
  const submit = submitting(() => bringing.mutate())
  return (
    <DialogFrame title={`Certificate of ${domain.domain}`} size="lg" onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <p className="dim">
          It is served at once, and goes before one that is ordered. The private key is stored encrypted and never
          shown.
        </p>
        <Textarea
          {...pem}
          label="Certificate (PEM)"
          description="That of the domain first, then those of its issuers in order."
          data-autofocus
          value={certificate}
          onChange={(event) => setCertificate(event.currentTarget.value)}
          error={at('/certificate')}
          styles={mono}
        />
        <Textarea
          {...pem}
          label="Private key (PEM)"
          value={key}
          onChange={(event) => setKey(event.currentTarget.value)}
          error={at('/private_key')}
          styles={mono}
        />
        {message === undefined || details.length > 0 ? null : (
          <div className="note bad wrap" role="alert">
            {message}
          </div>
        )}
        <div className="row apart wraps">
          {domain.certificate?.source === 'UPLOADED' && may('delete') ? (
            <Button variant="default" color="red" loading={removing.isPending} onClick={() => removing.mutate()}>
              Remove the uploaded one
            </Button>
          ) : (
            <Button variant="default" onClick={onClose}>
              Close
            </Button>
          )}
          <Button type="submit" loading={bringing.isPending} disabled={certificate === '' || key === ''}>
            Upload
          </Button>
        </div>
      </form>
    </DialogFrame>
  )
}
