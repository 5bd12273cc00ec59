/** The domains of a service, with the state of their certificates. */

import { Button, Checkbox, Textarea, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, resultsOf, type Schemas, toProblem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Breakable } from '../../ui/breakable.tsx'
import { DialogFrame } from '../../ui/dialog.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { submitting } from '../../ui/submitting.ts'
import { Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import type { Shown } from './shown.ts'

const listPath = '/container/{containerId}/customDomain'
const itemPath = `${listPath}/{customDomainId}` as const

interface Props {
  service: read.Service
  domain: Schemas['CustomDomain']
  onClose(): void
}

const pem = { autosize: true, minRows: 5, maxRows: 10, required: true, spellCheck: false } as const
const mono = { input: { fontFamily: 'var(--mono)', fontSize: 12 } }

/** A certificate that a user uploads for a domain, in place of an ordered one. */
const CertificateDialog = ({ service, domain, onClose }: Props) => {
  const may = useMay()
  const [certificate, setCertificate] = useState('')
  const [key, setKey] = useState('')
  const params = { path: { containerId: service.id, customDomainId: domain.id } }
  const path = read.pathOf(service.kind, `${itemPath}/certificate`)
  const onSuccess = (): void => {
    void read.refresh('domains')
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

const useDomains = ({ kind, id }: read.Service) =>
  useQuery({
    queryKey: ['domains', id],
    queryFn: () => resultsOf(client.GET(read.pathOf(kind, listPath), inPath({ containerId: id }))),
  })

const NewDomain = ({ service }: { service: read.Service }) => {
  const [domain, setDomain] = useState('')
  const [orders, setOrders] = useState(true)
  const adding = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST(read.pathOf(service.kind, listPath), {
          params: { path: { containerId: service.id } },
          body: { domain, generate_certificate: orders, use_cdn: false },
        }),
      ),
    onSuccess() {
      setDomain('')
      tell(`${domain} was added.`)
      void read.refresh('domains', 'links')
    },
  })
  const submit = submitting(() => adding.mutate())
  const problem = adding.error === null ? undefined : toProblem(adding.error).message
  return (
    <form className="row top wraps" onSubmit={submit}>
      <TextInput
        aria-label="Domain"
        placeholder="www.example.org"
        value={domain}
        onChange={(event) => setDomain(event.currentTarget.value)}
        error={problem}
        style={{ flex: 1, minWidth: 200, maxWidth: 360 }}
      />
      <Button type="submit" loading={adding.isPending} disabled={domain === ''}>
        Add
      </Button>
      <Checkbox
        label="Order a certificate for it"
        checked={orders}
        onChange={(event) => setOrders(event.currentTarget.checked)}
        style={{ alignSelf: 'center' }}
      />
    </form>
  )
}

type Domain = Schemas['CustomDomain']

const certificateWords: Record<string, string> = {
  WAITING: 'Certificate is waiting',
  ORDERING: 'Certificate is being ordered',
  ISSUED: 'Certificate issued',
  EXPIRED: 'Certificate expired',
}

const Certificate = ({ certificate }: Pick<Domain, 'certificate'>) => {
  if (certificate === null) return <span className="dim">none</span>
  const { state, source, expires_at: end, reason } = certificate
  return (
    <>
      {certificateWords[state] ?? state}
      {source === 'UPLOADED' ? <span className="chip">Uploaded</span> : null}
      {end === null ? null : (
        <p className="small dim">
          Valid until <Time at={end} />
        </p>
      )}
      {reason === null ? null : <p className="small dim">{reason}</p>}
    </>
  )
}

const dnsWords: Record<string, { tone: string; text: string }> = {
  RESOLVES_TO_IP: { tone: 'good', text: 'Points here' },
  MATCHES_LOAD_BALANCER_HOST: { tone: 'good', text: 'Points here' },
  DOMAIN_NOT_CONFIGURED: { tone: 'bad', text: 'Has no record yet' },
  DOMAIN_LINKED_TO_WRONG_HOST: { tone: 'bad', text: 'Points elsewhere' },
  GENERIC_FAILURE: { tone: 'bad', text: 'Could not be checked' },
}

const useCheck = ({ kind, id }: read.Service) =>
  useQuery({
    queryKey: ['domain check', id],
    queryFn: async () => {
      const path = read.pathOf(kind, '/container/{containerId}/checkCustomDomain')
      return resultsOf(client.GET(path, inPath({ containerId: id })))
    },
    enabled: false,
    gcTime: 0,
    retry: false,
  })

interface RowProps {
  domain: Domain
  check: { status: string; error_details: string | null } | undefined
  onUpload(): void
  onRemove(): void
}

const DomainRow = ({
  domain: { domain, validation_domain: target, certificate },
  check,
  onUpload,
  onRemove,
}: RowProps) => {
  const may = useMay()
  const found = check === undefined ? undefined : dnsWords[check.status]
  return (
    <tr>
      <td className="wrap of-domain">
        <span className="strong">
          <Breakable text={domain} />
        </span>
        {found === undefined ? null : <p className={`state ${found.tone}`}>{found.text}</p>}
        {check?.error_details == null ? null : <p className="small dim">{check.error_details}</p>}
      </td>
      <td className="wrap mono optional">
        <Breakable text={target ?? '–'} />
      </td>
      <td className="wrap of-certificate">
        <Certificate certificate={certificate} />
      </td>
      <td className="tight">
        <div className="row wraps">
          {may('write') ? <SmallButton onClick={onUpload}>Certificate</SmallButton> : null}
          {may('delete') ? <SmallButton onClick={onRemove}>Remove</SmallButton> : null}
        </div>
      </td>
    </tr>
  )
}

const DomainTable = ({ service, rows }: { service: read.Service; rows: readonly Domain[] }) => {
  const check = useCheck(service)
  const [uploading, upload] = useState<Domain | null>(null)
  const removing = useMutation({
    mutationFn: (id: string) =>
      answerOf(
        client.DELETE(read.pathOf(service.kind, itemPath), inPath({ containerId: service.id, customDomainId: id })),
      ),
    onSuccess: () => void read.refresh('domains'),
    onError: tellProblem,
  })
  return (
    <div className="stack">
      <div className="row">
        <Button variant="default" loading={check.isFetching} onClick={() => void check.refetch()}>
          Check the DNS records
        </Button>
        <span role="status" className="small" style={{ color: 'var(--bad)' }}>
          {check.error?.message ?? ''}
        </span>
      </div>
      <ListTable
        label="Domains"
        isCard
        heads={{ Domain: '', 'CNAME to': 'optional', Certificate: '', Actions: 'tight hidden' }}
      >
        {rows.map((domain) => (
          <DomainRow
            key={domain.id}
            domain={domain}
            check={check.data?.find(({ domain_name: name }) => name === domain.domain)}
            onUpload={() => upload(domain)}
            onRemove={() => removing.mutate(domain.id)}
          />
        ))}
      </ListTable>
      {uploading === null ? null : (
        <CertificateDialog service={service} domain={uploading} onClose={() => upload(null)} />
      )}
    </div>
  )
}

export const Domains = ({ service }: Shown) => {
  const may = useMay()
  const domains = useDomains(service)
  return (
    <div className="stack">
      {may('write') ? <NewDomain service={service} /> : null}
      <Answer of={domains}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty title="No domains of your own">
              <p>Point a CNAME of your domain at the address of this service, then add it here.</p>
            </Empty>
          ) : (
            <DomainTable service={service} rows={rows} />
          )
        }
      </Answer>
    </div>
  )
}
