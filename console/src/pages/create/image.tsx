/** A service from an image of a registry. */
import { Select, TextInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client } from '../../api/client.ts'
import { usePlace } from '../../ui/place.ts'
import { type FormProps, NameField, nameFrom, PortFields } from './fields.tsx'

const imageForm =
  /^(?:(?<host>[\w-]+(?:\.[\w-]+)+(?::\d+)?|localhost(?::\d+)?)\/)?(?<name>[^:@]+?)(?::(?<tag>[^:@/]+))?(?:@(?<digest>sha256:[0-9a-f]+))?$/

interface Registry {
  id: string
  name: string
  url?: string | undefined
}

const hostOf = (url: string | undefined): string => (url ?? '').replace(/^https?:\/\//, '').replace(/\/.*$/, '')

export const ImageForm = ({ body, change, problem }: FormProps) => {
  const { organizationId = '' } = usePlace()
  const [text, setText] = useState('')
  const registries = useQuery({
    queryKey: ['registries', organizationId],
    queryFn: async () =>
      (
        await answerOf(
          client.GET('/organization/{organizationId}/containerRegistry', { params: { path: { organizationId } } }),
        )
      ).results as Registry[],
    enabled: organizationId !== '',
  })
  const take = (next: string): void => {
    setText(next)
    const { host, name = '', tag, digest } = imageForm.exec(next.trim())?.groups ?? {}
    const all = registries.data ?? []
    const hub = all.find(({ url }) => /docker\.io$/.test(hostOf(url))) ?? all[0]
    const registry = host === undefined ? hub : (all.find(({ url }) => hostOf(url) === host) ?? undefined)
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(String(body.image_name ?? ''))
    change({
      image_name: name,
      tag: digest ?? tag ?? 'latest',
      registry_id: registry?.id ?? '',
      ...(isNamed ? { name: nameFrom(name) } : {}),
    })
  }
  return (
    <>
      <TextInput
        label="Image"
        description="Such as nginx:1.29 or ghcr.io/team/app:2.1"
        required
        data-autofocus
        value={text}
        onChange={(event) => take(event.currentTarget.value)}
        error={problem('/image_name') ?? problem('/tag')}
        styles={{ input: { fontFamily: 'var(--mono)' } }}
      />
      <Select
        label="Registry"
        required
        data={(registries.data ?? []).map(({ id, name, url }) => ({ value: id, label: `${name} (${hostOf(url)})` }))}
        value={String(body.registry_id ?? '') || null}
        onChange={(value) => change({ registry_id: value })}
        error={problem('/registry_id')}
      />
      <NameField {...{ body, change, problem }} />
      <PortFields {...{ body, change, problem }} />
    </>
  )
}
