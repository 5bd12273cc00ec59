/** What a restore reports to its operator: what is there, what comes back by itself, and what does not. */
import { keySql, localKey } from '../../clusters/local.ts'
import type { Database } from '../../store/database.ts'
import type { Beginning, End } from './manifest.ts'

export interface RestoredService {
  /** With its project and environment. */
  name: string
  /** It has data of its own, in volumes. */
  hasData: boolean
  /** It runs on the engine of the machine that has this server. */
  isHere: boolean
}

/** Those that were deployed and should run. */
export const readServices = (database: Database): Promise<RestoredService[]> =>
  database.query<RestoredService & Record<string, unknown>>(
    `select concat_ws('/', p.name, e.name, n.name) as name, coalesce(${keySql('c')}, '${localKey}') = '${localKey}' as "isHere",
       n.kind = 'database' or jsonb_path_exists(n.spec, '$.storage[*]') as "hasData"
     from service_state s join node n on n.id = s.service_id join node e on e.id = s.environment_id
     join node p on p.id = e.parent_id left join node c on c.id = s.cluster_id
     where s.desired = 'RUNNING' and s.current_release_id is not null
       and not (n.kind = 'database' and n.spec ->> 'mode' = 'MANAGED')
     order by 1 limit 10000`,
  )

interface Report {
  beginning: Beginning
  end: End
  migrated: readonly string[]
  services: readonly RestoredService[]
  dataDir: string
  /** Settings that name files, which are not in a backup. */
  paths: readonly { name: string; path: string }[]
  isFake: boolean
}

const mostNames = 20

const listed = (names: readonly string[]): string =>
  names.slice(0, mostNames).join(', ') + (names.length > mostNames ? ` and ${names.length - mostNames} more` : '')

const count = (services: readonly unknown[]): string =>
  services.length === 1 ? '1 service' : `${services.length} services`

const line = (title: string, text: string): string => `${title.padEnd(14)} ${text}`

const onServices = (services: readonly RestoredService[]): string[] => {
  const [data, others, elsewhere] = [
    services.filter(({ isHere, hasData }) => isHere && hasData),
    services.filter(({ isHere, hasData }) => isHere && !hasData),
    services.filter(({ isHere }) => !isHere),
  ]
  const names = (list: readonly RestoredService[]): string => listed(list.map(({ name }) => name))
  return [
    ...(others.length > 0
      ? [line('By itself', `${count(others)}: images are pulled or built again at the start: ${names(others)}`)]
      : []),
    ...(data.length > 0
      ? [
          line(
            'Your turn',
            `${count(data)} with data in volumes, which are not in this backup: restore them from theirs, or deploy them empty: ${names(data)}`,
          ),
        ]
      : []),
    ...(elsewhere.length > 0
      ? [line('Elsewhere', `${count(elsewhere)} on connected clusters, where nothing has changed: ${names(elsewhere)}`)]
      : []),
  ]
}

/** One fact a line. Pure. */
export const reportOf = ({ beginning, end, migrated, services, dataDir, paths, isFake }: Report): string[] => {
  const rows = end.tables.reduce((sum, table) => sum + table.rows, 0)
  const { made_at: at, slipway, host, data_directory: before, environment } = beginning
  const newer = migrated.length === 0 ? '' : `; ${migrated.length} newer migrations were applied`
  return [
    line('Restored', `the backup of ${at}, made by Slipway ${slipway} from ${before} on ${host}, into ${dataDir}`),
    line('Database', `${rows} rows of ${end.tables.length} tables, each compared with the backup${newer}`),
    ...onServices(services),
    line('Lost', 'logs of containers; images that were only on the first machine and have no source'),
    ...(environment.length > 0
      ? [line('Set again', `these settings were in the environment of the first server: ${environment.join(', ')}`)]
      : []),
    ...(paths.length > 0
      ? [line('Copy', `files that settings name: ${paths.map(({ name, path }) => `${name} (${path})`).join(', ')}`)]
      : []),
    line(
      'Next',
      `npm start${isFake ? ' -- --fake' : ''}; if the first server is still alive, read docs/guides/backup.md before`,
    ),
  ]
}
