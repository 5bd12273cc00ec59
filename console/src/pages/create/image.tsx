/** A service from an image of a registry. */

import { Select, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { answerOf, client } from '../../api/client.ts'
import { usePlace } from '../../ui/place.ts'
import { SmallButton } from '../../ui/small-button.ts'
import { hostOf, isDockerHub, useRegistries } from './choices.ts'
import { type Body, type FormProps, NameField, nameFrom, PortFields } from './fields.tsx'

const imageForm =
  /^(?:(?<host>[\w-]+(?:\.[\w-]+)+(?::\d+)?|localhost(?::\d+)?)\/)?(?<name>[^:@]+?)(?::(?<tag>[^:@/]+))?(?:@(?<digest>sha256:[0-9a-f]+))?$/

interface ImageFieldsProps {
  /** `image_name`, `tag` and `registry_id`. */
  image: Body
  put(fields: Body): void
  problem(field: string): string | undefined
  pointer: string
}

/** The tags of an image in the registry, read on request. */
const Tags = ({ image, put }: Pick<ImageFieldsProps, 'image' | 'put'>) => {
  const { organizationId = '' } = usePlace()
  const listing = useMutation({
    mutationFn: async () => {
      const path = { organizationId, containerRegistryId: String(image.registry_id) }
      const query = { imageName: String(image.image_name) }
      const { results } = await answerOf(
        client.GET('/organization/{organizationId}/containerRegistry/{containerRegistryId}/images', {
          params: { path, query },
        }),
      )
      return results.find(({ image_name: name }) => name === query.imageName)?.versions ?? results[0]?.versions ?? []
    },
  })
  const tags = listing.data
  return (
    <div className="row wraps">
      <SmallButton
        disabled={!image.image_name || !image.registry_id}
        loading={listing.isPending}
        onClick={() => listing.mutate()}
      >
        List its tags
      </SmallButton>
      {tags === undefined ? null : tags.length === 0 ? (
        <span className="small dim">The registry lists none.</span>
      ) : (
        <Select
          aria-label="Tag"
          size="xs"
          searchable
          data={[...new Set(tags)]}
          value={tags.includes(String(image.tag)) ? String(image.tag) : null}
          placeholder="Choose a tag"
          onChange={(tag) => (tag === null ? undefined : put({ tag }))}
        />
      )}
      <span role="status" className="small" style={{ color: 'var(--bad)' }}>
        {listing.error?.message ?? ''}
      </span>
    </div>
  )
}

const wordsOf = ({ image_name: name, tag }: Body): string =>
  name === undefined ? '' : `${String(name)}${String(tag).startsWith('sha256:') ? '@' : ':'}${String(tag)}`

/** An image by the name that `docker pull` takes. */
export const ImageFields = ({ image, put, problem, pointer }: ImageFieldsProps) => {
  const { organizationId = '' } = usePlace()
  const registries = useRegistries()
  const [text, setText] = useState(wordsOf(image))
  const registryOf = (host: string | undefined): string => {
    const hub = registries.all.find(isDockerHub) ?? registries.all[0]
    const registry = host === undefined ? hub : registries.all.find(({ url }) => hostOf(url) === host)
    return registry?.id ?? ''
  }
  const take = (next: string): void => {
    setText(next)
    const { host, name = '', tag, digest } = imageForm.exec(next.trim())?.groups ?? {}
    put({ image_name: name, tag: digest ?? tag ?? 'latest', registry_id: registryOf(host) })
  }
  // The registry of an image that was typed before the registries were read is chosen when they are.
  useEffect(() => {
    if (image.registry_id !== '') return
    const registryId = registryOf(imageForm.exec(text.trim())?.groups?.host)
    if (registryId !== '') put({ registry_id: registryId })
  })
  return (
    <>
      <TextInput
        label="Image"
        description="Such as nginx:1.29 or ghcr.io/team/app:2.1"
        required
        data-autofocus
        value={text}
        onChange={(event) => take(event.currentTarget.value)}
        error={problem(`${pointer}/image_name`) ?? problem(`${pointer}/tag`)}
        styles={{ input: { fontFamily: 'var(--mono)' } }}
      />
      <Tags
        image={image}
        put={(fields) => {
          put(fields)
          setText(wordsOf({ ...image, ...fields }))
        }}
      />
      <Select
        label="Registry"
        required
        data={registries.all.map(({ id, name, url }) => ({ value: id, label: `${name} (${hostOf(url)})` }))}
        value={String(image.registry_id ?? '') || null}
        onChange={(id) => put({ registry_id: id })}
        error={problem(`${pointer}/registry_id`) ?? registries.problem}
      />
      {registries.all.length > 0 || !registries.isKnown ? null : (
        <p className="note warn">
          The organization has no registry yet.{' '}
          <Link to="/o/$organizationId/$section" params={{ organizationId, section: 'registries' }}>
            Add one
          </Link>{' '}
          first.
        </p>
      )}
    </>
  )
}

export const ImageForm = ({ body, change, problem }: FormProps) => {
  const put = (fields: Body): void => {
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(String(body.image_name ?? ''))
    const named = fields.image_name === undefined ? undefined : nameFrom(String(fields.image_name))
    change({ ...fields, ...(isNamed && named !== undefined ? { name: named } : {}) })
  }
  return (
    <>
      <ImageFields image={body} put={put} problem={problem} pointer="" />
      <NameField {...{ body, change, problem }} />
      <PortFields {...{ body, change, problem }} />
    </>
  )
}
