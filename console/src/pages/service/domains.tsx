/** The domains of a service, with the state of their certificates. */
import { Button, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { answerOf, client, toProblem } from '../../api/client.ts'
import type * as read from '../../api/queries.ts'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import type { Shown } from './shown.ts'

const domainPath = (kind: read.Kind) => `/${kind}/{containerId}/customDomain` as '/container/{containerId}/customDomain'

const useDomains = ({ kind, id }: read.Service) =>
  useQuery({
    queryKey: ['domains', id],
    queryFn: async () =>
      (await answerOf(client.GET(domainPath(kind), { params: { path: { containerId: id } } }))).results,
  })

const NewDomain = ({ service }: { service: read.Service }) => {
  const queries = useQueryClient()
  const [domain, setDomain] = useState('')
  const adding = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST(domainPath(service.kind), {
          params: { path: { containerId: service.id } },
          body: { domain, generate_certificate: true, use_cdn: false },
        }),
      ),
    onSuccess() {
      setDomain('')
      tell(`${domain} was added.`)
      for (const name of ['domains', 'links']) void queries.invalidateQueries({ queryKey: [name] })
    },
  })
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    adding.mutate()
  }
  const problem = adding.error === null ? undefined : toProblem(adding.error).message
  return (
    <form className="row top" onSubmit={submit}>
      <TextInput
        aria-label="Domain"
        placeholder="www.example.org"
        value={domain}
        onChange={(event) => setDomain(event.currentTarget.value)}
        error={problem}
        style={{ flex: 1, maxWidth: 360 }}
      />
      <Button type="submit" loading={adding.isPending} disabled={domain === ''}>
        Add
      </Button>
    </form>
  )
}

const certificateWords: Record<string, string> = {
  WAITING: 'Certificate is waiting',
  ORDERING: 'Certificate is being ordered',
  ISSUED: 'Certificate issued',
  EXPIRED: 'Certificate expired',
}

export const Domains = ({ service }: Shown) => {
  const may = useMay()
  const queries = useQueryClient()
  const domains = useDomains(service)
  const removing = useMutation({
    mutationFn: (id: string) => {
      const path =
        `${domainPath(service.kind)}/{customDomainId}` as '/container/{containerId}/customDomain/{customDomainId}'
      return answerOf(client.DELETE(path, { params: { path: { containerId: service.id, customDomainId: id } } }))
    },
    onSuccess: () => void queries.invalidateQueries({ queryKey: ['domains'] }),
    onError: tellProblem,
  })
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
            <div className="card scroll">
              <table className="list">
                <thead>
                  <tr>
                    <th>Domain</th>
                    <th className="optional">CNAME to</th>
                    <th>Certificate</th>
                    <th className="tight">
                      <span className="hidden-text">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map(({ id, domain, validation_domain: target, certificate }) => (
                    <tr key={id}>
                      <td className="wrap strong">{domain}</td>
                      <td className="wrap mono optional">{target ?? '–'}</td>
                      <td className="wrap">
                        {certificate === null ? (
                          <span className="dim">none</span>
                        ) : (
                          (certificateWords[certificate.state] ?? certificate.state)
                        )}
                        {certificate?.reason == null ? null : <p className="small dim">{certificate.reason}</p>}
                      </td>
                      <td className="tight">
                        {may('delete') ? (
                          <Button size="compact-sm" variant="default" onClick={() => removing.mutate(id)}>
                            Remove
                          </Button>
                        ) : null}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Answer>
    </div>
  )
}
